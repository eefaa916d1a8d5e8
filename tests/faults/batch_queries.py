"""Queries by batch APIs that are run in processes of their own, to be killed, and then again."""

from __future__ import annotations

import penstock as ps
from penstock.functions import embed_text, prompt

QUESTIONS = [f"number {i}" for i in range(40)]


def use(url: str) -> None:
    ps.set_provider("anthropic", base_url=url, api_key="test")
    ps.set_provider("openai", base_url=f"{url}/v1", api_key="test")


def answers(provider: str) -> list[str]:
    column = prompt(ps.col("q"), provider=provider, batch_api=True, batch_poll_interval=0.05, batch_max_requests=25)
    found: list[str] = ps.from_pydict({"q": QUESTIONS}).select(column).to_pydict()["q"]
    return found


def embeddings() -> int:
    column = embed_text(ps.col("q"), provider="openai", dimensions=8, batch_api=True, batch_poll_interval=0.05)
    return len(ps.from_pydict({"q": QUESTIONS}).select(column).to_pydict()["q"])


def run(cache_dir: str, url: str, work: str) -> None:
    """Run a query in a process that is killed."""
    use(url)
    with ps.config(cache_dir=cache_dir):
        if work == "embeddings":
            embeddings()
        else:
            answers(work)
