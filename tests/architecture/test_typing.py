"""Scripts of users under ``mypy --strict``, and what ``help`` says. One run of mypy checks all scripts."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.udf.options import BATCH_OPTIONS, CALL_OPTIONS

ROOT = Path(__file__).parents[2]

GOOD = """
from collections.abc import Iterator
import numpy as np
import numpy.typing as npt
import penstock as ps
from penstock import DataType, Series, col
from penstock.functions import upper


@ps.func
def shout(text: str) -> str:
    return text.upper()


@ps.func(max_retries=2, on_error="log")
async def fetch(url: str, timeout: float = 1.0) -> str:
    return url


@ps.func
def several(n: int) -> Iterator[int]:
    yield from range(n)


@ps.func.batch(return_dtype=DataType.int64(), batch_size=16)
def double(x: Series) -> list[int]:
    return [2 * value for value in x]


@ps.cls(gpus=0, concurrency=2)
class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @ps.method
    def __call__(self, x: float) -> float:
        return self.helper(x) * self.scale

    @ps.method.batch(return_dtype=DataType.float64())
    def batch(self, x: Series) -> npt.NDArray[np.float64]:
        return np.asarray(x.to_numpy()) * self.scale

    @ps.method(max_retries=1)
    def helper(self, x: float) -> float:
        return x


def over_batch(batch: dict[str, npt.NDArray[np.int64]]) -> dict[str, npt.NDArray[np.int64]]:
    return {"y": batch["id"] * 2}


model = Model(2.0)
plain: str = shout("hi")
numbers: float = model(3.0)
column: ps.Expression = shout(col("t"))
df = (
    ps.range(10)
    .with_column("t", col("id").cast("string"))
    .with_column("u", shout(col("t")).upper())
    .with_column("v", upper(col("t")))
    .with_column("w", model(col("id")))
    .with_column("z", model.batch(col("id")) + double(col("id")))
    .with_column("f", fetch(col("t"), timeout=2.0))
    .where((col("id") > 2) & col("t").not_null())
    .select("id", "t", n=several(n=col("id")))
    .map_batches(over_batch, batch_size=32)
)
rows: list[dict[str, object]] = df.to_pylist()
df.explain()
"""

BAD = """
import penstock as ps
from penstock import col

col("a").upperr()
ps.range(3).selectt("id")
ps.func(on_error="nul")


@ps.func
def shout(text: str) -> str:
    return text.upper()


number: int = shout("hi")
number = shout(col("t"))
"""


TYPOS = """
ps.read_parqet("x")
ps.read_csv("x", delimeter=";")
ps.read_parquet("x", file_path_colum="p")
ps.from_pandsa(None)
ps.prompt("{a}", temprature=0.0)
ps.prompt("{a}", modle="gpt-5")
ps.prompt("{a}", on_error="nul")
ps.embed_text("{a}", dimension=8)
ps.classify_text("{a}", ["x"], score=True)
ps.set_config(memory_limt="1GB")
ps.config(num_thread=1)
ps.set_provider("openai", task="embedding")
df.map_batches(double, batchsize=8)
df.map(double, retries=1)
df.group_by("a").map_groups(double, gpu=1)
df.write_parquet("x", mode="overwrit")
df.write_lance("x", rows=1)
df.selct("a")
ps.col("a").upperr()
ps.func(max_retry=1)
ps.cls(gpu=1)
Model().predct("x")
functions.upprr(ps.col("a"))
""".strip().splitlines()

BEFORE_TYPOS = """
import penstock as ps
from penstock import functions


def double(row: dict[str, int]) -> dict[str, int]:
    return row


@ps.cls
class Model:
    @ps.method
    def predict(self, text: str) -> str:
        return text


df = ps.range(3)
"""


def test_a_typo_is_an_error(tmp_path: Path) -> None:
    """As in editors; pyright says the same, but its package downloads the program, so a test cannot run it."""
    (tmp_path / "typos.py").write_text(BEFORE_TYPOS + "\n".join(TYPOS))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", str(tmp_path / "typos.py")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    first = len(BEFORE_TYPOS.splitlines()) + 1
    found = {int(line.split(":")[1]) - first for line in run.stdout.splitlines() if ": error: " in line}
    assert [line for number, line in enumerate(TYPOS) if number not in found] == []
    assert min(found) >= 0, run.stdout


def test_a_script_is_clean_and_mistakes_are_found(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-pretty",
        str(tmp_path / "good.py"),
        str(tmp_path / "bad.py"),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line.partition("bad.py:")[2] for line in run.stdout.splitlines() if ": error: " in line]
    assert [error.split(":")[0] for error in errors] == ["5", "6", "7", "15", "16"], run.stdout + run.stderr
    assert '"Expression" has no attribute "upperr"' in errors[0]
    assert 'has type "str", variable has type "int"' in errors[3]
    assert 'has type "Expression"' in errors[4]


@pytest.mark.parametrize(
    ("decorator", "options"),
    [
        (ps.func, ["return_dtype", "unnest", *CALL_OPTIONS]),
        (ps.func.batch, ["return_dtype", "unnest", "batch_size", *BATCH_OPTIONS, *CALL_OPTIONS]),
        (ps.cls, CALL_OPTIONS),
    ],
)
def test_help_explains_every_option(decorator: Callable[..., Any], options: list[str]) -> None:
    text = pydoc.plain(pydoc.render_doc(decorator))
    for option in options:
        assert f"  {option}: " in text.partition("Options:")[2]
