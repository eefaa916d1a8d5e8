"""Scripts of users as type checkers see them. `make check` runs mypy and pyright on this file; nothing calls it.

Every `type: ignore` marks a mistake: both checkers complain if the line has no error.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import penstock as ps
from penstock import DataType, Series, col, functions
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
class Scaler:
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


@ps.cls
class Model:
    @ps.method
    def predict(self, text: str) -> str:
        return text


def double_row(row: dict[str, int]) -> dict[str, int]:
    return row


def correct() -> tuple[str, float, ps.Expression, list[dict[str, object]]]:
    scaler = Scaler(2.0)
    df = (
        ps.range(10)
        .with_column("t", col("id").cast("string"))
        .with_column("u", shout(col("t")).upper())
        .with_column("v", upper(col("t")))
        .with_column("w", scaler(col("id")))
        .with_column("z", scaler.batch(col("id")) + double(col("id")))
        .with_column("f", fetch(col("t"), timeout=2.0))
        .where((col("id") > 2) & col("t").not_null())
        .select("id", "t", n=several(n=col("id")))
        .map_batches(over_batch, batch_size=32)
    )
    df.explain()
    return shout("hi"), scaler(3.0), shout(col("t")), df.to_pylist()


def mistakes(df: ps.DataFrame) -> int:
    ps.read_parqet("x")  # type: ignore[attr-defined]
    ps.read_csv("x", delimeter=";")  # type: ignore[call-arg]
    ps.read_parquet("x", file_path_colum="p")  # type: ignore[call-arg]
    ps.from_pandsa(None)  # type: ignore[attr-defined]
    ps.prompt("{a}", temprature=0.0)  # type: ignore[call-arg]
    ps.prompt("{a}", modle="gpt-5")  # type: ignore[call-arg]
    ps.prompt("{a}", on_error="nul")  # type: ignore[arg-type]
    ps.embed_text("{a}", dimension=8)  # type: ignore[call-arg]
    ps.classify_text("{a}", ["x"], score=True)  # type: ignore[call-arg]
    ps.set_config(memory_limt="1GB")  # type: ignore[call-arg]
    ps.config(num_thread=1)  # type: ignore[call-arg]
    ps.set_provider("openai", task="embedding")  # type: ignore[arg-type]
    df.map_batches(double_row, batchsize=8)  # type: ignore[call-arg]
    df.map(double_row, retries=1)  # type: ignore[call-arg]
    df.group_by("a").map_groups(double_row, gpu=1)  # type: ignore[call-arg]
    df.write_parquet("x", mode="overwrit")  # type: ignore[arg-type]
    df.write_lance("x", rows=1)  # type: ignore[call-arg]
    df.selct("a")  # type: ignore[attr-defined]
    ps.col("a").upperr()  # type: ignore[attr-defined]
    ps.func(max_retry=1)  # type: ignore[call-overload]
    ps.cls(gpu=1)  # type: ignore[call-overload]
    Model().predct("x")  # type: ignore[attr-defined]
    functions.upprr(ps.col("a"))  # type: ignore[attr-defined]
    col("a").upperr()  # type: ignore[attr-defined]
    df.selectt("id")  # type: ignore[attr-defined]
    ps.func(on_error="nul")  # type: ignore[call-overload]
    if df.columns:
        return shout("hi")  # type: ignore[return-value]
    return shout(col("t"))  # type: ignore[return-value]
