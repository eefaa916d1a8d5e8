"""moto's S3 API on loopback, in a process of its own, for workloads that read from an object store.

`python -m benchmarks.s3` serves on a free port, which it prints, until its standard input closes.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "benchmark"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_REGION": "us-east-1"}


@contextmanager
def serving_objects(objects: Iterator[tuple[str, bytes]]) -> Iterator[dict[str, str]]:
    """Serve a bucket that holds these objects; gives the environment with which clients reach it."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.s3"]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = next(line for line in server.stdout if line.strip().isdecimal()).strip()
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        _fill(environment, objects)
        yield environment
        server.stdin.close()


def _fill(environment: dict[str, str], objects: Iterator[tuple[str, bytes]]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    client.create_bucket(Bucket=BUCKET)
    for key, content in objects:
        client.put_object(Bucket=BUCKET, Key=key, Body=content)


def main() -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
