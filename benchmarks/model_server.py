"""The model API that prompts and embeddings are measured against, and the hand-written client of it.

The server is `penstock.testing.ModelServer` in a process of its own: the harness starts one for a workload, and all
engines ask it in turn. Before its work an engine calls `fresh_api()`, so that every run meets the same server.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

ADDRESS = "BENCHMARK_MODEL_SERVER"
API_KEY = "benchmark"
MODEL = "gpt-5-mini"
EMBEDDING_MODEL = "text-embedding-3-small"

CONCURRENCY = 256
"""Requests that the hand-written client has under way. The best of three times for 10,000 of 50 ms, on a busy machine:
4.6 s by 128, 2.6 s by 256, 2.9 s by 512."""

DAFT_OPTIONS = {"use_chat_completions": True}
"""What Daft documents for prompts, and its quicker API. By single runs on a busy machine, 1,000 prompts took 7.9 s by
Responses and 7.2 s by Chat. Its bound on requests (`concurrency=256`, in no list of options) made 8.3 s of 1,000
prompts 7.2 s, but took 30.6 s of CPU for 3,000 where 26.4 s did without."""


@contextmanager
def serving_models(**script: Any) -> Iterator[dict[str, str]]:
    """Serve by a script, whose fields are `ModelServer`'s; gives the environment with which clients reach it."""
    from penstock.testing import ModelServer

    with ModelServer(**script) as server:
        yield {ADDRESS: server.url}


def serving_in_50ms(num_rows: int) -> AbstractContextManager[dict[str, str]]:
    """Serve every request after 50 ms, and keep no record of it."""
    return serving_models(latency=0.05, keep_requests=0)


def fresh_api() -> str:
    """Reset the server's record and its latencies. Return the base URL of its API."""
    control("restart")
    return os.environ[ADDRESS] + "/v1"


def load_penstock() -> None:
    """Import what Penstock imports at the first prompt or request: no engine's imports count as work."""
    import aiohttp  # noqa: F401
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion, in the hand-written loop too)
    import pydantic.type_adapter  # noqa: F401
    import uvloop  # noqa: F401

    import penstock.ai.prompt  # noqa: F401


def run_penstock(run: Any, answered: Callable[[Any], Any]) -> None:
    """Write the rows of ``answered(df)``, with this server in place of OpenAI's."""
    import penstock as ps

    load_penstock()
    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        answered(ps.read_parquet(run.input)).write_parquet(run.output, mode="overwrite", compression="snappy")


def run_plain(
    run: Any,
    path: str,
    bodies: Callable[[Any], list[dict[str, Any]]],
    read: Callable[[dict[str, Any]], Any],
    result: Callable[[Any, list[Any]], Any],
    *,
    per_second: float | None = None,
    **options: Any,
) -> None:
    """Post the ``bodies`` of a table by the hand-written client. Write ``result`` of the table and the answers.

    ``read`` converts the body of an answer; ``options`` go to ``pyarrow.parquet.write_table``.
    """
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow.parquet as pq

    client = PlainClient(fresh_api() + path, per_second=per_second)
    with run.working():
        table = pq.read_table(run.input)
        found = result(table, client.ask_all(bodies(table), read))
        pq.write_table(found, f"{run.output}/part-0.parquet", **options)


def prompt_bodies(table: Any) -> list[dict[str, Any]]:
    return [{"model": MODEL, "input": prompt} for prompt in table["prompt"].to_pylist()]


def with_answers(table: Any, answers: list[Any]) -> Any:
    import pyarrow as pa

    return table.append_column("answer", pa.array(answers))


def control(what: str) -> Any:
    """Return the server's state: ``counts`` or ``requests``; ``restart`` clears it."""
    from urllib.request import urlopen

    with urlopen(f"{os.environ[ADDRESS]}/_penstock/{what}") as reply:
        return json.load(reply)


def make_prompts(rng: Any, start: int, num_rows: int) -> Any:
    """Return numbered questions of about forty words."""
    import pyarrow as pa

    words = ["river", "engine", "valve", "summer", "ledger", "paper", "stone", "window", "copper", "winter"]
    drawn = rng.integers(0, len(words), (num_rows, 40))
    numbers = range(start, start + num_rows)
    prompts = [f"Question {n}: {' '.join(words[i] for i in row)}?" for n, row in zip(numbers, drawn, strict=True)]
    return pa.record_batch({"id": pa.array(numbers), "prompt": pa.array(prompts)})


def said(body: dict[str, Any]) -> str:
    """Return the text of an answer of the Responses API."""
    text: str = body["output"][-1]["content"][0]["text"]
    return text


class PlainClient:
    """aiohttp on uvloop and as little else as possible; what it needs is imported when it is made.

    As many coroutines as requests may be under way take the next body each, which is quicker than a task for each.
    ``per_second`` is for who knows the server's limit: requests are sent at that pace, refused ones again.
    """

    def __init__(self, url: str, concurrency: int = CONCURRENCY, per_second: float | None = None) -> None:
        import aiohttp
        import orjson
        import uvloop

        self._aiohttp, self._orjson, self._uvloop = aiohttp, orjson, uvloop
        self._url = url
        self._concurrency = concurrency
        self._per_second = per_second
        self._next_at = 0.0

    def ask_all(self, bodies: Sequence[dict[str, Any]], read: Callable[[dict[str, Any]], Any]) -> list[Any]:
        """Post every body; return what ``read`` makes of each answer, in their order."""
        with asyncio.Runner(loop_factory=self._uvloop.new_event_loop) as runner:
            return runner.run(self._ask_all(bodies, read))

    async def _ask_all(self, bodies: Sequence[dict[str, Any]], read: Callable[[dict[str, Any]], Any]) -> list[Any]:
        answers = [None] * len(bodies)
        rest = iter(enumerate(bodies))
        headers = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
        connector = self._aiohttp.TCPConnector(limit=0)
        async with self._aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def take() -> None:
                for number, body in rest:
                    answers[number] = read(await self._post(session, self._orjson.dumps(body)))

            await asyncio.gather(*[take() for _ in range(self._concurrency)])
        return answers

    async def _post(self, session: Any, data: bytes) -> dict[str, Any]:
        while True:
            if self._per_second is not None:
                await self._turn()
            async with session.post(self._url, data=data) as reply:
                raw = await reply.read()
            if reply.status == 200:
                body: dict[str, Any] = self._orjson.loads(raw)
                return body
            if reply.status != 429:
                raise RuntimeError(f"{reply.status}: {raw!r}")

    async def _turn(self) -> None:
        assert self._per_second is not None
        now = asyncio.get_running_loop().time()
        at, self._next_at = max(self._next_at, now), max(self._next_at, now) + 1 / self._per_second
        await asyncio.sleep(at - now)
