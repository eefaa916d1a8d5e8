"""``prompt`` on engines of this machine: a scripted one, and vLLM's where it is installed."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.ai.local.serving.prompter import EnginePrompter
from penstock.ai.local.serving.provider import PrefixCachingProvider, VllmProvider
from penstock.ai.local.weights import has_gpu
from penstock.ai.provider import Model, ModelTask
from penstock.errors import InvalidArgumentError, MissingExtraError, ProviderUnusableError, UdfError
from penstock.functions import concat_ws, prompt
from penstock.protocols import ReadRequest
from penstock.types import Schema
from tests.ai.local_models import save_llama
from tests.ai.scripted_engine import SCRIPTS, Script, ScriptedSpec

HAS_VLLM = importlib.util.find_spec("vllm") is not None and has_gpu()
ENGINES = ("scripted", "vllm") if HAS_VLLM else ("scripted",)


@dataclass(frozen=True)
class ScriptedProvider(ps.Provider):
    """Models of a script, which stand for those of vLLM."""

    groups_prefixes: bool = False
    num_replicas: int = 1
    name: str = "scripted"

    def model(self, task: ModelTask) -> Model:
        spec = ScriptedSpec(task.model or "m", self.num_replicas)
        return EnginePrompter(spec, task, task.options, groups_prefixes=self.groups_prefixes)


@pytest.fixture
def script() -> Iterator[Script]:
    SCRIPTS["m"] = Script()
    yield SCRIPTS["m"]
    assert SCRIPTS.pop("m").num_open == 0, "the engine was not closed"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """``prompt`` with a model of the engine."""
    if request.param == "scripted":
        request.getfixturevalue("script")
        return lambda *args, **options: prompt(*args, **{"provider": ScriptedProvider(), "model": "m", **options})
    model = save_llama(tmp_path)
    settings = {"enforce_eager": True, "gpu_memory_utilization": 0.1, "max_model_len": 256}
    provider = VllmProvider(engine_kwargs=settings)
    return lambda *args, **options: prompt(*args, **{"provider": provider, "model": model, "max_tokens": 8, **options})


# --- on every engine --------------------------------------------------------------------------------------------------


def test_answers_come_back_in_order_with_their_usage(engine: Callable[..., Any]) -> None:
    questions = ["word " * n for n in range(1, 41)]
    df = ps.from_pydict({"q": [*questions, None]}).select(engine(ps.col("q"), usage=True))
    found = df.to_pydict()["q"]
    assert found[-1] is None
    sizes = [each["input_tokens"] for each in found[:-1]]
    assert sizes == sorted(set(sizes))  # each row has the answer to its own prompt
    assert {each["finish_reason"] for each in found[:-1]} <= {"stop", "length"}
    assert all(each["latency_s"] > 0 and each["output_tokens"] > 0 for each in found[:-1])


def test_several_answers_and_options_of_rows(engine: Callable[..., Any]) -> None:
    df = ps.from_pydict({"q": ["a b", "c d"], "t": [0.5, -1.0]})
    asked = df.select(engine(ps.col("q"), n=2, temperature=ps.col("t"), on_error="null"))
    assert [value and len(value) for value in asked.to_pydict()["q"]] == [2, None]
    (error,) = asked.errors().to_pylist()
    assert "c d" in error["input"]
    assert "refuse" in error["message"]


def test_steps_that_name_a_model_share_one_engine(engine: Callable[..., Any]) -> None:
    df = ps.from_pydict({"q": ["a", "b"]}).with_column("first", engine(ps.col("q")))
    df = df.with_column("second", engine(concat_ws(" ", ps.col("q"), ps.col("first"))))
    assert all(df.to_pydict()["second"])
    if script := SCRIPTS.get("m"):
        assert script.num_starts == 1


# --- on the scripted engine -------------------------------------------------------------------------------------------


def ask(*args: Any, **options: Any) -> Any:
    return prompt(*args, **{"provider": ScriptedProvider(), "model": "m", **options})


def test_max_concurrency_limits_the_requests_in_flight(script: Script) -> None:
    ps.from_pydict({"q": [f"{n}" for n in range(100)]}).select(ask(ps.col("q"), max_concurrency=4)).collect()
    assert script.max_in_flight <= 4


@dataclass
class Part:
    """Rows of a source. The second part waits for an answer to a row of the first."""

    texts: list[str]
    answered: threading.Event | None = None
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        if self.answered is not None and not self.answered.wait(60):
            raise TimeoutError("no answer came before the input was read")
        yield pa.record_batch({"q": pa.array(self.texts)})


@dataclass
class Parts:
    answered: threading.Event
    name: str = "parts"
    can_filter: bool = False

    def schema(self) -> Schema:
        return Schema.from_arrow(pa.schema({"q": pa.string()}))

    def read_tasks(self, request: ReadRequest) -> Iterator[Part]:
        yield Part([f"prefix {n % 5}|{n}" for n in range(300)])
        yield Part([f"prefix {n % 5}|{n}" for n in range(300, 400)], self.answered)


def test_the_first_answer_comes_before_the_input_is_read(script: Script) -> None:
    answered = threading.Event()
    script.on_answer = answered.set
    df = ps.read_source(Parts(answered)).select(ask(ps.col("q"), provider=ScriptedProvider(groups_prefixes=True)))
    assert df.to_pydict()["q"] == [f"prefix {n % 5}|{n}" for n in range(400)]


def test_a_deadly_prompt_is_the_error_of_its_row(script: Script) -> None:
    df = ps.from_pydict({"q": ["a", "DIE", "b"]})
    asked = df.select(ask(ps.col("q"), on_error="null"))
    assert asked.to_pydict()["q"] == ["a", None, "b"]
    (error,) = asked.errors().to_pylist()
    assert error["error_type"] == "WorkerDiedError"
    with pytest.raises(UdfError, match=r"WorkerDiedError: .*the last time on it alone"):
        df.select(ask(ps.col("q"))).collect()


def test_an_engine_that_cannot_start_ends_the_query(script: Script) -> None:
    script.start_error = "no such model"
    with pytest.raises(ProviderUnusableError, match="no such model"):
        ps.from_pydict({"q": ["a"]}).select(ask(ps.col("q"), on_error="null")).collect()


def test_a_query_that_stops_aborts_its_requests(script: Script) -> None:
    with pytest.raises(UdfError):
        ps.from_pydict({"q": ["WAIT", "NO"]}).select(ask(ps.col("q"))).collect()
    assert script.num_aborted == 1


def test_cached_answers_start_no_engine(script: Script, tmp_path: Path) -> None:
    df = ps.from_pydict({"q": ["a", "b"]}).select(ask(ps.col("q"), temperature=0.5))
    with ps.config(cache_dir=str(tmp_path)):
        assert df.to_pydict() == df.to_pydict()
    assert (script.num_starts, len(script.order)) == (1, 2)


def test_an_unusual_option_is_refused_when_the_query_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_VLLM_BASE_URL", raising=False)
    column = ps.col("q")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"engine_args": {}}, "Did you mean 'engine_kwargs'"),
        ({"engine_kwargs": [1]}, "engine_kwargs is a dict; got list"),
        ({"engine_kwargs": {"dtype": object()}}, "engine_kwargs takes plain values"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": column}, "takes one concurrency for all rows"),
        ({"model": None}, "needs a model"),
    ]
    for options, message in mistakes:
        with pytest.raises(InvalidArgumentError, match=message):
            prompt(column, **{"provider": PrefixCachingProvider(), "model": "m", **options})
    with pytest.raises(InvalidArgumentError, match="embed_text with provider 'vllm' needs a server"):
        ps.embed_text(column, provider="vllm", model="m")
    with pytest.raises(InvalidArgumentError, match="model takes one value for all rows"):
        ask(column, model=column)
    if not HAS_VLLM:
        with pytest.raises(MissingExtraError, match=r"pip install \"penstock\[vllm\]\""):
            prompt(column, provider="vllm", model="m")
