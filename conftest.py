"""Fixtures and settings for every test and every docstring example."""

from __future__ import annotations

import dataclasses
import gc
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from penstock.testing import ModelServer

# The time of an example depends on the machine more than on the code.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

# A shell ignores Ctrl-C in background jobs, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Load all functions before one module of them: pytest would run that module again, and register it twice.

    To look for examples in the docstrings of all tests would take a tenth of the collection.
    """
    if "functions" in file_path.parent.parts:
        import penstock.functions  # noqa: F401
    collected = yield
    has_examples = not file_path.name.startswith("test_") or ">>>" in file_path.read_text()
    return [each for each in collected if has_examples or not isinstance(each, DoctestModule)]


EXAMPLE_FILES = {
    "tone.wav": "tone",
    "clip.mp4": "clip",
    "booklet.pdf": "booklet",
    '"clip"': "tiny_clip",
    '"reranker"': "tiny_reranker",
}
CALLS_OF_MODELS = re.compile(
    r"\b(prompt|decide|ask|embed_text|classify_text|classify_image|semantic_\w+|OpenAIProcessorConfig)\("
)


@pytest.fixture(autouse=True)
def _surroundings_of_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run docstring examples as users paste them: with ``ps``, in a folder with the files they name, and with a key.

    Models are those of a test server, which answers with what it is asked, and decides by the words of the text.
    """
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import penstock as ps

    request.getfixturevalue("doctest_namespace")["ps"] = ps
    monkeypatch.chdir(request.getfixturevalue("tmp_path"))
    source = "".join(example.source for example in request.node.dtest.examples)
    for name, fixture in EXAMPLE_FILES.items():
        if name in source:
            request.getfixturevalue(fixture)
    if CALLS_OF_MODELS.search(source):
        server = request.getfixturevalue("model_server")
        for name, value in {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "test"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PENSTOCK_PROVIDER", "openai")


@pytest.fixture(autouse=True)
def _no_provider_stays() -> Iterator[None]:
    """Detach the providers that a test attached."""
    yield
    registry = sys.modules.get("penstock.ai.provider_registry")
    if registry is not None:
        registry.detach_providers()


@pytest.fixture
def tone(tmp_path: Path) -> str:
    """A WAV file of one second, for docstring examples."""
    from tests.media_files import write_tone

    return write_tone(tmp_path / "tone.wav")


@pytest.fixture
def clip(tmp_path: Path) -> str:
    """A video of two seconds with a key frame every half."""
    from tests.media_files import write_clip

    return write_clip(tmp_path / "clip.mp4")


@pytest.fixture
def booklet(tmp_path: Path) -> str:
    """A PDF of two pages."""
    from tests.media_files import write_pdf

    return write_pdf(tmp_path / "booklet.pdf", ["The first page.", "The second page."])


@pytest.fixture(scope="session")
def _model_server() -> Iterator[ModelServer]:
    from penstock.testing import ModelServer

    with ModelServer() as server:
        yield server


@pytest.fixture
def model_server(_model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model server that answers with the prompt; ``change`` gives it another script."""
    from penstock.ai.client.limits.limiter import forget_limits
    from penstock.ai.provider_registry import detach_providers
    from penstock.testing import Script

    script = Script()
    _model_server.change(**{each.name: getattr(script, each.name) for each in dataclasses.fields(script)})
    _model_server.clear()
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "PENSTOCK_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    yield _model_server
    detach_providers()
    forget_limits()


@pytest.fixture
def tiny_clip(tmp_path: Path) -> str:
    """A CLIP model of a few kilobytes, for docstring examples."""
    from tests.ai.local_models import save_clip

    return save_clip(tmp_path / "clip")


@pytest.fixture
def tiny_reranker(tmp_path: Path) -> str:
    """A cross-encoder of a few kilobytes, for docstring examples."""
    from tests.ai.local_models import save_reranker

    return save_reranker(tmp_path / "reranker")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Hide the tests and their imports from the garbage collector, which would look at them again and again."""
    gc.disable()
    is_done: Any = yield
    gc.enable()
    gc.collect()
    gc.freeze()
    return is_done


def _not_run(config: pytest.Config) -> list[Any]:
    """Return the reports of tests that were skipped or allowed to fail."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")  # absent in an xdist worker: its controller counts
    return [report for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])] if reporter else []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _not_run(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if reports := _not_run(config):
        terminalreporter.section("A skipped test counts as a failure: install what it needs, or remove it", red=True)
        for report in reports:
            terminalreporter.line(report.nodeid)
