"""A reader of a folder in a store finds a commit that has not ended: it waits only if the writer may be alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ReadError
from penstock.io import consistent_listing
from penstock.storage.dead_processes import machine_id, process_identity
from tests.storage.servers import Bucket

pytestmark = pytest.mark.one_machine

KILLED = (
    "import json\nfrom penstock.storage.dead_processes import process_identity\nprint(json.dumps(process_identity()))"
)


@pytest.fixture
def bucket(quick_endpoint: str) -> Bucket:
    options = {"key": "me", "secret": "very-secret", "region": "us-east-1", "endpoint_url": quick_endpoint}
    return Bucket(f"abandoned-{uuid.uuid4().hex[:12]}", options)


def identity_of_a_dead_process() -> dict[str, Any]:
    printed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, check=True).stdout
    found: dict[str, Any] = json.loads(printed)
    assert found["machine"] == machine_id()
    return found


def read_during_commit(bucket: Bucket, holder: dict[str, Any], lock: str) -> None:
    bucket.store.put("out/a.parquet", b"")
    folder = "_penstock_job" if lock.startswith("_penstock_job") else "_penstock_staging/run"
    bucket.store.put(f"out/{folder}/commit.json", b'{"moves": [], "deletes": []}')
    bucket.store.put(f"out/{lock}", json.dumps(holder).encode())
    ps.read_parquet(f"{bucket.url}/out", storage_options=bucket.options)


@pytest.mark.parametrize("lock", ["_penstock_staging/run.lock", "_penstock_job/lock/000002"])
@pytest.mark.parametrize("end", ["killed", "reused", "released"])
def test_a_dead_writer(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, lock: str, end: str) -> None:
    monkeypatch.setattr(consistent_listing, "MAX_WAIT_S", 10_000.0)
    match end:
        case "killed":
            holder = identity_of_a_dead_process()
        case "reused":  # another process has its number now
            holder = identity_of_a_dead_process() | {"pid": os.getpid()}
        case _:
            holder = process_identity() | {"is_released": True}
    with pytest.raises(ReadError, match="the process of that write has ended"):
        read_during_commit(bucket, holder, lock)


@pytest.mark.parametrize("machine", ["this one", "another"])
def test_a_writer_that_may_be_alive(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(consistent_listing, "MAX_WAIT_S", 0.3)
    elsewhere = identity_of_a_dead_process() | {"machine": "another"}
    with pytest.raises(ReadError, match="a commit has been in progress for"):
        read_during_commit(
            bucket, process_identity() if machine == "this one" else elsewhere, "_penstock_staging/run.lock"
        )
