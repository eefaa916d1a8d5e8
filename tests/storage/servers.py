"""Object stores on loopback, each in its own process, and their buckets."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.storage.object_stores import ObjectStore
from penstock.storage.stores import object_store

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Bucket:
    """A bucket of its own for a test."""

    name: str
    options: dict[str, Any]
    scheme: str = "s3"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.name}"

    @property
    def store(self) -> ObjectStore:
        return object_store(self.scheme, self.name, self.options)

    @property
    def keys(self) -> list[str]:
        return sorted(entry.key for entry in self.store.list_below(""))


@contextmanager
def serving(module: str) -> Iterator[str]:
    """Run a server that prints its port and serves until its standard input closes; yield its address."""
    command = [sys.executable, "-W", "ignore", "-m", module]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port = next(line for line in server.stdout if line.strip().isdecimal()).strip()
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()


def s3_client(options: dict[str, Any]) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        region_name="us-east-1",
    )


def new_bucket(endpoint: str) -> Bucket:
    """Create a bucket on moto's S3 API."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    options = {"key": "AKIATESTKEY", "secret": "very-secret-value", "endpoint_url": endpoint, "region": "us-east-1"}
    client = s3_client(options)
    client.create_bucket(Bucket=name)
    client.close()
    return Bucket(name, options)
