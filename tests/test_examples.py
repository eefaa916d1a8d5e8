"""Every example runs as it is, without a network, and prints what it promises."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import patch

import nbformat
import pytest
from nbclient import NotebookClient

from penstock.testing import model_server
from tests.architecture.imports import ROOT

# The start of something that each example prints.
PRINTS = {
    "quickstart": "96 reviews embedded and classified",
    "structured_extraction": "drops the connection",
    "budget_and_resume": "480 rows, ",
    "batch_overnight": "480 prompts in batches for $0.0026",
    "ask": "asked about 168 of 480 reviews",
    "semantic_verbs": "59 requests for 480 reviews",
    "decide": "480 requests for 480 reviews and three questions",
    "judge_two_models": "gpt-5-mini │     33",
    "pdf_to_lance": "8 chunks from 4 pages",
    "answer_questions": "three years from the day of purchase",
    "caption_images": "A picture that is dark above",
    "huggingface": "68% of the topics",
    "vllm_shared_prefixes": "electronics",
    "own_model": "Each photo and the one most like it",
    "transcribe_audio": "(a tone of 2.5 seconds)",
    "dedup_corpus": "354 rows without equal texts",
    "database": "no     │   144",
    "on_ray": "local runner, worker processes: ",
    "test_pipeline": "3 passed",
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*PRINTS, "offline"}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_is_short(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 60


PROCESSES_OF_THEIR_OWN = {"budget_and_resume": "it starts itself again", "test_pipeline": "it runs pytest"}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["96"] if name == "quickstart" else []  # reviews, of which 480 take half a minute on a busy machine
    command = [str(ROOT / "examples" / f"{name}.py"), *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_BASE_URL"))}
    environment |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    if name in PROCESSES_OF_THEIR_OWN:
        run = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        assert PRINTS[name] in run.stdout, run.stdout
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", command)
    servers = set(model_server._started)
    with patch.dict(os.environ, environment, clear=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(command[0], run_name="__main__")
    for server in model_server._started - servers:
        server.stop()
    assert PRINTS[name] in capsys.readouterr().out


# What an output of each notebook has: a table, pictures, progress.
SHOWS = {"tables_and_prompts": "300 rows in", "images": "data:image/", "search": "distance"}


@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_runs_and_shows_something(name: str) -> None:
    path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    environment = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_BASE_URL"))}
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env=environment | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"})
    if os.environ.get("PENSTOCK_WRITE_OUTPUTS"):  # as readers see it who do not run it
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times
        nbformat.write(notebook, path)
    outputs = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert SHOWS[name] in outputs
    assert "<table" in outputs
