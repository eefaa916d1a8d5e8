"""What the pages about parts of the package show runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing import ModelServer
from tests.architecture.imports import ROOT
from tests.media.images.samples import jpeg, picture


def code_of(text: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))


def code_on(page: str) -> str:
    return code_of((ROOT / "docs" / page).read_text())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of files that the page leaves open
def test_the_examples_of_the_page_on_images_run(run_page: Callable[[str], str]) -> None:
    Path("photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        Path("photos", name).write_bytes(jpeg(picture()))
    assert "not an image" in run_page(code_on("IMAGES.md"))
    assert len(list(Path("thumbnails").glob("*.jpeg"))) == 2


def test_the_example_of_the_page_on_processors_runs(
    run_page: Callable[[str], str], model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_server.change(api_key="sk-docs")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.openai_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-docs")
    assert "3 ** 3 = ?" in run_page(code_on("LLM.md"))
    assert {each.body["temperature"] for each in model_server.requests} == {0.0, 0.3}


def test_the_example_of_the_page_on_finished_work_runs(run_page: Callable[[str], str]) -> None:
    assert run_page(code_on("DURABLE.md")) == "computing one\ncomputing three\nb'4'\n"


def test_the_examples_of_the_page_on_relations_run(run_page: Callable[[str], str]) -> None:
    page, _, _ = (ROOT / "docs" / "RELATIONAL.md").read_text().partition("## Similar rows")
    assert run_page(code_of(page)).splitlines()[-2:] == [
        "{'item': [1, 2], 'spread': [2, 0]}",
        "{'text': ['bright'], 'stars': [5]}",
    ]
