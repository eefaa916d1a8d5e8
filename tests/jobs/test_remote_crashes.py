"""A job on an object store that ends at any of its writes there: the next run makes the output whole."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.errors import StoreUnavailableError
from penstock.io.commit import lease
from penstock.storage.object_stores import ObjectStore
from tests.jobs.remote_job import NUM_ROWS, job
from tests.storage.servers import Bucket


class Crash(BaseException):
    """The end of the process, as far as the store can tell."""


class Outage:
    """Lets a number of writes to stores through, and nothing after them."""

    def __init__(self) -> None:
        self.num_left = 0

    def ending(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: ObjectStore, *args: Any) -> Any:
            self.num_left -= 1
            if self.num_left < 0:
                is_job = threading.current_thread() is threading.main_thread()
                raise Crash if is_job else StoreUnavailableError("gone")
            return method(store, *args)

        return call


@pytest.fixture
def bucket(quick_endpoint: str) -> Bucket:
    options = {"key": "me", "secret": "very-secret", "region": "us-east-1", "endpoint_url": quick_endpoint}
    return Bucket(f"crash-{uuid.uuid4().hex[:12]}", options)


@pytest.mark.parametrize("num_writes", range(0, 36, 4))
def test_a_job_that_ends_after_some_writes(
    bucket: Bucket, num_writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    frame = job(str(tmp_path / "calls"), cache=True).where(col("a") % 3 != 0)

    def write() -> None:
        with ps.config(checkpoint_interval=0.001, progress=False):
            frame.write_parquet(f"{bucket.url}/out", resume=True, storage_options=bucket.options)

    with monkeypatch.context() as patched:
        outage = Outage()
        for name in ("put", "create", "delete"):
            patched.setattr(ObjectStore, name, outage.ending(getattr(ObjectStore, name)))
        for num_left in (num_writes, num_writes + 2, num_writes // 2):
            outage.num_left = num_left
            try:
                write()
            except Crash:
                lease._held.clear()  # what the end of the process does
    write()
    rows = ps.read_parquet(f"{bucket.url}/out", storage_options=bucket.options).to_pydict()
    assert sorted(rows["b"]) == [a * 10 for a in range(NUM_ROWS) if a % 3]
    assert not [key for key in bucket.keys if "/data/" in key or "commit.json" in key]
