"""Answers are cached: a second run makes no calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel

import penstock as ps
from penstock.ai.conversation import Request, Text, UserTurn
from penstock.ai.provider import Prompting, loaded
from penstock.ai.provider_registry import make_provider
from penstock.cache.ledger import open_ledger
from penstock.cache.ledger.store import FileLedger
from penstock.cache.memo import Codec, Memo
from penstock.cache.ordinals import Ordinals
from penstock.errors import InvalidArgumentError, PenstockError
from penstock.functions import embed_text, prompt
from penstock.testing import ModelRequest, ModelServer, faults

QUESTIONS = [f"number {i}" for i in range(30)]


@pytest.fixture
def server(model_server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    with ps.config(cache_dir=str(tmp_path / "cache")):
        yield model_server


def ask(questions: list[Any], **options: Any) -> list[Any]:
    answer = prompt(ps.col("q"), model="gpt-5", use_chat_completions=True, **options)
    found: list[Any] = ps.from_pydict({"q": questions}).select(answer.alias("a")).to_pydict()["a"]
    return found


def test_a_second_run_asks_nothing(server: ModelServer) -> None:
    first = ask(QUESTIONS)
    assert ask(QUESTIONS) == first == QUESTIONS
    assert server.num_requests == len(QUESTIONS)


def test_what_is_new_is_asked(server: ModelServer) -> None:
    ask(QUESTIONS[:20])
    assert ask(QUESTIONS) == QUESTIONS
    assert server.num_requests == len(QUESTIONS)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.5}, {"system_message": "Be brief."}, {"max_tokens": 9}, {"extra_body": {"top_k": 1}}, {"n": 2}],
    ids=str,
)
def test_another_request_is_another_call(server: ModelServer, change: dict[str, Any]) -> None:
    ask(["a"])
    ask(["a"], **change)
    assert server.num_requests == 2


def test_another_server_is_asked_again(server: ModelServer) -> None:
    ask(["a"])
    with ModelServer() as other:
        ps.set_provider("openai", base_url=other.openai_url, api_key="test")
        ask(["a"])
        assert other.num_requests == 1


def test_another_key_is_not_another_call(server: ModelServer) -> None:
    ask(["a"])
    ps.set_provider("openai", base_url=server.openai_url, api_key="another")
    ask(["a"])
    assert server.num_requests == 1


def test_another_return_format_reads_cached_answers(server: ModelServer) -> None:
    class First(BaseModel):
        name: str

    class Second(BaseModel):
        name: str
        size: int | None = None

    server.change(answer=lambda request: '{"name": "x", "size": 3}')
    assert ask(["a"], return_format=First) == [{"name": "x"}]
    assert ask(["a"], return_format=Second) == [{"name": "x", "size": 3}]
    assert server.num_requests == 1


def test_samples_stay_samples(server: ModelServer) -> None:
    ask(["a", "a", "a"], temperature=0.8)
    assert server.num_requests == 3
    ask(["a", "a", "a", "a"], temperature=0.8)
    assert server.num_requests == 4


def test_deterministic_requests_are_sent_once(server: ModelServer) -> None:
    server.change(latency=0.05)
    assert ask(["a", "b"] * 20, temperature=0) == ["a", "b"] * 20
    assert server.num_requests == 2


def test_failures_are_not_cached(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "no", first=1)])
    assert ask(["a"], on_error="null") == [None]
    assert ask(["a"], on_error="null") == ["a"]


def test_an_equal_call_is_made_where_the_first_fails(server: ModelServer) -> None:
    server.change(latency=0.05, faults=[faults.HttpError(400, "no", first=1)])
    answers = ask(["a"] * 5, temperature=0, on_error="null")
    assert (answers.count("a"), answers.count(None)) == (4, 1)
    assert server.num_requests == 2


def test_cache_may_be_switched_off(server: ModelServer) -> None:
    for _ in range(2):
        ask(["a"], cache=False)
    assert server.num_requests == 2


def test_cache_wants_a_place(model_server: ModelServer) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    kept = prompt(ps.col("q"), cache=True)
    with pytest.raises(InvalidArgumentError, match="cache_dir"):
        ps.from_pydict({"q": ["a"]}).select(kept).collect()


def test_usage_is_that_of_the_call(server: ModelServer) -> None:
    (first,), (second,) = ask(["a b c"], usage=True), ask(["a b c"], usage=True)
    assert second["output_tokens"] == first["output_tokens"]
    assert first["latency_s"] is not None
    assert second["latency_s"] is None


def test_vectors_are_cached_by_text(server: ModelServer) -> None:
    texts = [f"text {i}" for i in range(300)]

    def vectors(texts: list[str], **options: Any) -> np.ndarray[Any, Any]:
        df = ps.from_pydict({"t": texts}).select(embed_text(ps.col("t"), provider="openai", dimensions=8, **options))
        return np.stack(df.to_pydict()["t"])

    first = vectors(texts)
    num_requests = server.num_requests
    np.testing.assert_array_equal(vectors(texts), first)
    assert server.num_requests == num_requests
    np.testing.assert_array_equal(vectors([*texts[:5], "new"])[:5], first[:5])
    assert server.requests[-1].body["input"] == ["new"]


def test_a_killed_run_keeps_its_answers(server: ModelServer, tmp_path: Path) -> None:
    """The process is killed by its own 20th answer; the second run asks for what had not come."""
    script = f"""
import os, signal, penstock as ps
from penstock.functions import prompt
ps.set_config(cache_dir={str(tmp_path / "cache")!r}, progress=False)
ps.set_provider("openai", base_url={server.openai_url!r}, api_key="test")
answer = prompt(ps.col("q"), model="gpt-5", max_concurrency=2)
df = ps.from_pydict({{"q": [f"number {{i}}" for i in range(60)]}}).with_column("a", answer)
for number, row in enumerate(df.iter_rows()):
    if number == 20 and os.environ.get("DIE"):
        from penstock.cache.ledger import open_ledgers as sharing
        for ledger, _ in sharing._open.values():
            ledger.flush()
        os.kill(os.getpid(), signal.SIGKILL)
print(number + 1)
"""
    dying = {**os.environ, "DIE": "1"}
    first = subprocess.run([sys.executable, "-c", script], env=dying, capture_output=True)
    assert first.returncode == -9
    asked = server.num_requests
    second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert second.stdout.strip() == "60", second.stderr
    assert 60 <= server.num_requests <= 62
    assert asked >= 20


def test_a_waiting_call_computes_what_another_failed_to(tmp_path: Path) -> None:
    async def run() -> None:
        memo = Memo(open_ledger(tmp_path), Codec(bytes, bytes))
        made = []

        async def ask() -> bytes:
            made.append(1)
            await asyncio.sleep(0.01)
            if len(made) == 1:
                raise ValueError("no")
            return b"yes"

        answers = await asyncio.gather(*(memo.share(b"k" * 16, ask) for _ in range(3)), return_exceptions=True)
        assert [type(answer).__name__ for answer in answers].count("ValueError") == 1
        assert sorted(answer for answer in answers if isinstance(answer, tuple)) == [(b"yes", False), (b"yes", True)]
        memo.close()

    asyncio.run(run())


def test_any_text_is_cached(server: ModelServer) -> None:
    def answer(request: ModelRequest) -> str:
        return 'é\u2028 "quoted" ' * 1000

    server.change(answer=answer)
    assert ask(["a"]) == ask(["a"])
    assert server.num_requests == 1


# --- a task at a time -------------------------------------------------------------------------------------------------


def counted_gets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gains the number of keys of each look into a ledger."""
    sizes: list[int] = []
    get = FileLedger.get

    def counting(ledger: FileLedger, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        sizes.append(len(keys))
        return get(ledger, keys)

    monkeypatch.setattr(FileLedger, "get", counting)
    return sizes


@pytest.mark.parametrize("options", [{}, {"temperature": 0}], ids=str)
def test_known_rows_are_looked_up_together(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    questions = [f"number {i}" for i in range(3000)]
    ask(questions, **options)
    sizes = counted_gets(monkeypatch)
    assert ask(questions, **options) == questions
    assert server.num_requests == len(questions)
    assert sum(sizes) == len(questions)
    assert len(sizes) <= len(questions) // 64 + 1


def test_rows_that_are_not_known_are_asked_without_a_second_look(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(QUESTIONS[::2])
    sizes = counted_gets(monkeypatch)
    assert ask(QUESTIONS) == QUESTIONS
    assert server.num_requests == len(QUESTIONS)
    assert sum(sizes) == len(QUESTIONS)


def test_nulls_and_empty_texts_are_in_their_places(server: ModelServer) -> None:
    questions = [None, "a", "", "b", None]
    first = ask(questions, on_error="null")
    asked = server.num_requests
    assert ask(questions, on_error="null") == first
    assert (first[0], first[1], first[3], first[4]) == (None, "a", "b", None)
    assert server.num_requests == asked


def test_messages_of_several_parts_and_conversations_are_cached(server: ModelServer) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    df = ps.from_pydict({"q": ["a", "b"], "talk": [talk, talk]})
    for _ in range(2):
        columns = [prompt(["Say", ps.col("q"), 3], model="gpt-5").alias("x"), prompt(ps.col("talk"), model="gpt-5")]
        df.select(*columns).collect()
        assert server.num_requests == 4


def test_an_answer_of_another_form_is_asked_for_again(server: ModelServer) -> None:
    class Thing(BaseModel):
        name: str

    server.change(answer=lambda request: "no JSON")
    assert ask(["a"]) == ["no JSON"]
    server.change(answer=lambda request: '{"name": "x"}')
    assert ask(["a", "b"], return_format=Thing) == [{"name": "x"}, {"name": "x"}]
    assert server.num_requests == 3
    with pytest.raises(PenstockError, match="JSON"):
        ask(["a"], return_format=Thing, max_reasks=0)
    assert ask(["a"], return_format=Thing, max_reasks=0, on_error="null") == [None]


def test_conversations_with_tools_are_cached(server: ModelServer) -> None:
    def double(x: int) -> int:
        """Double a number."""
        return 2 * x

    server.change(faults=[faults.CallTools([("double", {"x": 21})])])
    first = ask(["a"], tool_functions=[double])
    assert ask(["a"], tool_functions=[double]) == first
    assert server.num_requests == 2


def test_samples_of_one_task_keep_their_order(server: ModelServer) -> None:
    numbers = iter(range(100))
    server.change(answer=lambda request: f"{next(numbers)}")
    first = ask(["a", "a", "b", "a"])
    assert len(set(first)) == 4
    assert sorted(ask(["a", "a", "b", "a"])) == sorted(first)
    assert server.num_requests == 4


WIRES: list[tuple[str, dict[str, Any]]] = [
    ("openai", {}),
    ("openai", {"use_chat_completions": True}),
    ("openai", {"use_chat_completions": True, "extra_body": {"messages": []}}),
    ("anthropic", {"temperature": 0}),
    ("google", {"temperature": 0.5}),
]


@pytest.mark.parametrize(("provider", "options"), WIRES, ids=str)
@pytest.mark.parametrize("system", [None, 'Say "no".'], ids=["plain", "system"])
def test_a_text_has_the_key_of_its_request(
    tmp_path: Path, provider: str, options: dict[str, Any], system: str | None
) -> None:
    """The quick way to a key, by what is the same for all rows, gives what the long way does."""
    model: Any = make_provider(provider, {"api_key": "k"}).model(Prompting("some-model-1", options))
    texts = ["hi", "", 'é\u2028\x00"\\', "0f8e3c6b5d7a41929e", "x" * 5000, "hi"]
    with ps.config(cache_dir=str(tmp_path)):

        async def keys(look_up: Callable[[Any], Any]) -> list[Any]:
            asked = loaded(model)
            found = list(look_up(asked))
            await asked.close()
            return found

        requests = [Request((UserTurn((Text(text),)),), system) for text in texts]
        like = Request((), system)
        quick = asyncio.run(keys(lambda asked: asked.cached.look_up_texts([t for t in texts if t], like, [None] * 5)))
        slow = asyncio.run(keys(lambda asked: asked.cached.look_up([r for r in requests if r.text])))
    assert quick == slow


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_rows", [10, 1000])
def test_equal_prompts_of_a_query_are_samples_too(server: ModelServer, num_rows: int) -> None:
    server.change(answer=lambda request: uuid.uuid4().hex)

    def question() -> ps.Column:
        return prompt(ps.col("q"), model="gpt-5", max_concurrency=32)

    df = ps.from_pydict({"q": ["a"] * num_rows})

    def answers() -> list[str]:
        found = df.with_column("x", question()).with_column("y", question()).to_pydict()
        return sorted([*found["x"], *found["y"]])

    first = answers()
    assert len(set(first)) == server.num_requests == 2 * num_rows
    assert answers() == first
    df.select(question().concat(question())).collect()
    assert server.num_requests == 2 * num_rows


def test_deterministic_requests_of_a_query_are_sent_once(server: ModelServer) -> None:
    first, second = (prompt(ps.col("q"), model="gpt-5", temperature=0) for _ in range(2))
    ps.from_pydict({"q": ["a"] * 5}).with_column("x", first).with_column("y", second).collect()
    assert server.num_requests == 1


def claimed(ledger: Path, rows: Sequence[bytes | None], era: str = "1") -> list[bytes]:
    """Return the keys of as many equal calls, made by rows in one run."""
    ordinals = Ordinals(open_ledger(ledger), era)
    ordinals.store_claims()
    try:
        return ordinals.keys([b"k" * 16] * len(rows), rows)
    finally:
        ordinals.close()


def test_a_row_finds_its_samples_in_the_next_run(tmp_path: Path) -> None:
    rows = [str(number).encode() for number in range(300)]
    first = claimed(tmp_path, rows + rows[:5])
    assert len(set(first)) == 305
    assert claimed(tmp_path, [*rows[200:], *rows[3:5], *rows[3:5]]) == [*first[200:300], *first[3:5], *first[303:305]]
    (new,) = claimed(tmp_path, [b"another"])
    assert new not in first
    assert claimed(tmp_path, [None, rows[0]])[1] == first[0]
    assert claimed(tmp_path, [b"another", b"third"], era="2") == first[:2]


def test_claims_wait_for_an_answer(tmp_path: Path) -> None:
    ordinals = Ordinals(open_ledger(tmp_path), "1")
    ordinals.keys([b"k" * 16] * 2, [b"one", b"two"])
    ordinals.close()
    assert not list(tmp_path.glob("*.log"))


def test_failed_rows_that_run_again_ask_in_place_of_stored_answers_that_are_invalid(
    model_server: ModelServer, tmp_path: Path
) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")

    class Named(BaseModel):
        name: str

    def write(resume: bool | Literal["errors"]) -> int:
        """Run the job and return the number of its calls."""
        model_server.clear()
        df = ps.from_pydict({"q": QUESTIONS}).with_column(
            "a", prompt(ps.col("q"), Named, model="gpt-5", on_error="null", max_errors=None, max_reasks=0)
        )
        df.write_parquet(str(tmp_path / "out"), resume=resume)
        return model_server.num_requests

    def num_failed() -> int:
        return ps.read_parquet(str(tmp_path / "out")).where(ps.col("a").is_null()).count_rows()

    model_server.change(faults=[faults.InvalidAnswer("no JSON", containing="number 1")])
    assert (write(True), num_failed()) == (30, 11)  # number 1, and 10 to 19
    assert (write(True), num_failed()) == (0, 11)
    assert (write("errors"), num_failed()) == (11, 11)
    model_server.change(faults=[faults.InvalidAnswer("no JSON", containing="number 15")])
    assert (write("errors"), num_failed()) == (11, 1)
    model_server.change(faults=[])
    assert (write("errors"), num_failed()) == (1, 0)
    assert (write("errors"), num_failed()) == (0, 0)
