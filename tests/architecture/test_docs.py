"""What the pages about parts of the package show runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder to work in, with a few images."""
    from tests.media.images.samples import jpeg, picture

    (tmp_path / "photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "photos" / name).write_bytes(jpeg(picture()))
    return tmp_path


def test_the_examples_of_the_page_on_images_run(photos: Path) -> None:
    page = (ROOT / "docs" / "IMAGES.md").read_text()
    script = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=photos,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_PROGRESS": "0"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "not an image" in result.stdout
    assert len(list((photos / "thumbnails").glob("*.jpeg"))) == 2


def test_the_example_of_the_page_on_processors_runs(tmp_path: Path) -> None:
    from penstock.testing import ModelServer

    page = (ROOT / "docs" / "LLM.md").read_text()
    script = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    with ModelServer(api_key="sk-docs", in_thread=True) as server:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PENSTOCK_PROGRESS": "0",
                "OPENAI_BASE_URL": server.openai_url,
                "OPENAI_API_KEY": "sk-docs",
            },
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        assert "3 ** 3 = ?" in result.stdout
        assert {each.body["temperature"] for each in server.requests} == {0.0, 0.3}


def test_the_example_of_the_page_on_finished_work_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "DURABLE.md").read_text()
    script = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "computing one\ncomputing three\nb'4'\n"


def test_the_examples_of_the_page_on_relations_run(tmp_path: Path) -> None:
    page, _, _ = (ROOT / "docs" / "RELATIONAL.md").read_text().partition("## Similar rows")
    script = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == [
        "{'item': [1, 2], 'spread': [2, 0]}",
        "{'text': ['bright'], 'stars': [5]}",
    ]
