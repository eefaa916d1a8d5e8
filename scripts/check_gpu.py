"""See on a machine with a GPU what CI cannot: `python scripts/check_gpu.py` prints a line for each check.

Placement on a real device, two methods of one model on it, CUDA out-of-memory halved and remembered, and what a
measured batch size gives against fixed ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import penstock as ps
from penstock import DataType, Series, col

WIDTH = 4096


@ps.cls(gpus=1)
class Encoder:
    """Three wide layers in half precision: enough work to make a batch size matter."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(3) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers).half().cuda().eval()
        self.pid = os.getpid()

    @ps.method.batch(return_dtype=DataType.float32())
    def score(self, seed: Series) -> Any:
        with torch.inference_mode():
            return self.model(inputs(seed)).float().mean(1).cpu().numpy()

    @ps.method.batch(return_dtype=DataType.string())
    def where(self, seed: Series) -> list[str]:
        return [f"{os.environ['CUDA_VISIBLE_DEVICES']} {torch.cuda.device_count()} {self.pid}"] * len(seed)


def inputs(seed: Series) -> torch.Tensor:
    rows = torch.from_numpy(np.array(seed.to_numpy())).cuda().half()
    return (rows[:, None] / 1000 + torch.arange(WIDTH, device="cuda").half() / WIDTH).sin()


def check_placement() -> str:
    model = Encoder()
    df = ps.range(1000).select(model.where(col("id")).alias("where"), model.score(col("id")).alias("score"))
    seen = set(df.to_pydict()["where"])
    assert len(seen) == 1, seen
    devices, num_devices, pid = seen.pop().split()
    assert num_devices == "1"
    assert pid != str(os.getpid())
    return f"two methods of one model in one process, on device {devices}"


def check_out_of_memory() -> str:
    """A model whose memory grows with the rows until the card is full."""

    class Hungry:
        def __init__(self) -> None:
            self.sizes: list[int] = []
            total = torch.cuda.get_device_properties(0).total_memory
            self.row_nbytes = total // 300  # so that about 300 rows are too many

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            num_rows = len(batch["id"])
            held = torch.ones((num_rows, self.row_nbytes), dtype=torch.uint8, device="cuda")
            return {"id": batch["id"], "size": np.full(num_rows, num_rows), "ok": held[:, 0].cpu().numpy()}

    rows = ps.range(4096).map_batches(Hungry, batch_size=1024, num_gpus=1, concurrency=1).to_pydict()
    assert sorted(rows["id"]) == list(range(4096))
    assert set(rows["ok"]) == {1}
    sizes = [size for size, _ in runs(rows["size"])]
    assert max(sizes) < 300
    return f"batches of 1024 rows that do not fit went through as {sizes[:4]}... after {len(sizes)} calls"


def runs(values: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(values):
        yield values[start], start
        start += values[start]


def check_batch_size() -> str:
    """The measured size against fixed ones, on the same rows."""

    def timed(batch_size: Any) -> float:
        @ps.cls(gpus=1)
        class Sized(Encoder._wrapped):  # type: ignore[misc, name-defined]
            @ps.method.batch(return_dtype=DataType.float32(), batch_size=batch_size)
            def rate(self, seed: Series) -> Any:
                return self.score(seed)

        with stopwatch() as seconds:
            total = ps.range(400_000).select(Sized().rate(col("id")).alias("score")).to_arrow()
        assert total.num_rows == 400_000
        return seconds[0]

    times = {size: timed(size) for size in (32, 256, 2048, 16384, "auto")}
    best = min(seconds for size, seconds in times.items() if size != "auto")
    shown = ", ".join(f"{size}: {seconds:.2f} s" for size, seconds in times.items())
    return f"{shown}; auto takes {times['auto'] / best:.2f}x of the best fixed size"


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    seconds = [0.0]
    started = time.perf_counter()
    yield seconds
    seconds[0] = time.perf_counter() - started


if __name__ == "__main__":
    print(torch.cuda.get_device_name(0), "torch", torch.__version__)  # noqa: T201
    for check in (check_placement, check_out_of_memory, check_batch_size):
        print(f"{check.__name__}: {check()}", flush=True)  # noqa: T201
