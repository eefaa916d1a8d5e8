"""Fixtures that several folders of tests share; servers live for the whole session."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import cloudpickle
import pytest

import tests.engine
import tests.faults
import tests.runners
import tests.udf
from tests.forked_workers import ForkServer, use
from tests.storage.servers import Bucket, new_bucket, serving
from tests.storage.web import Web, start_web

# As those of a script, functions of these tests travel by value: or each of hundreds of worker processes imports
# pytest, and what else is imported beside the function, which takes longer than its start.
for room in (tests.engine, tests.faults, tests.runners, tests.udf):
    cloudpickle.register_pickle_by_value(room)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One small Ray cluster for the session; a test that asks for it must be marked ``ray``."""
    import ray

    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        _system_config={"worker_niceness": 0},  # or its workers starve beside the tests that are not on Ray
    )
    yield
    ray.shutdown()


RUNNERS = ["local", pytest.param("ray", marks=pytest.mark.ray)]
OF_DATAFRAMES = ("expr", "frame", "functions", "io", "relational", "similarity", "udf")
"""Folders whose tests run on both runners, unless they are marked ``one_machine``."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once on each runner if it is one of DataFrames, or asks for a runner."""
    asks = "runner" in metafunc.definition._fixtureinfo.argnames
    folder = metafunc.definition.path.relative_to(metafunc.config.rootpath / "tests").parts[0]
    if asks or (folder in OF_DATAFRAMES and not metafunc.definition.get_closest_marker("one_machine")):
        wanted = {"not ray": RUNNERS[:1], "ray": RUNNERS[1:]}.get(metafunc.config.option.markexpr, RUNNERS)
        metafunc.parametrize("runner", wanted, indirect=True)


@pytest.fixture(autouse=True)
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """The runner of the queries of a test."""
    name = getattr(request, "param", "local")
    if name == "local":
        yield name
        return
    import penstock as ps

    request.getfixturevalue("ray_cluster")
    ps.set_runner_ray()
    yield name
    ps.set_runner_local()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the server of worker processes, and keep the tests themselves out of every collection of garbage."""
    gc.freeze()
    if session.config.option.markexpr != "ray" and not session.config.option.collectonly:
        server = ForkServer()
        use(server)
        session.config.add_cleanup(server.close)


@pytest.fixture
def real_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes as users do, in new interpreters."""
    monkeypatch.setattr("penstock.engine.pools.process_group.subprocess", subprocess)


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    """Undo what a test sets for the whole process, such as a cache."""
    module = import_module("penstock.config")
    before = module._process_config
    yield
    module._process_config = before


@pytest.fixture
def run_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Run the blocks of a page in this process, one after another in a folder of their own; return what each prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = {"__name__": "__main__"}

    def run(code: str) -> str:
        exec(compile(code, "<page>", "exec", dont_inherit=True), names)
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Moto's S3 API."""
    with serving("tests.storage.s3_server") as url:
        yield url


@pytest.fixture(scope="session")
def quick_endpoint() -> Iterator[str]:
    """The APIs of S3, Google and Azure from memory, at thousands of requests a second."""
    with serving("tests.storage.object_server") as url:
        yield url


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    return new_bucket(s3_endpoint)


@pytest.fixture
def web() -> Iterator[Web]:
    served, server = start_web()
    yield served
    served.release.set()
    server.shutdown()
    server.server_close()
