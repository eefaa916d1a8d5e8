"""A query of 200 prompts in a process of its own: ``python -m tests.faults.ended_query KIND URL FOLDER``."""

from __future__ import annotations

import sys

import penstock as ps

FIRST, NUM_ROWS = 1000, 200
NUM_EMBEDDED = 30  # requests, each with 256 texts


def prompts() -> ps.DataFrame:
    numbers = ps.from_pydict({"n": list(range(FIRST, FIRST + NUM_ROWS))})
    return numbers.with_column("a", ps.prompt(ps.format("number {}", ps.col("n")), model="m", on_error="raise"))


def texts() -> ps.DataFrame:
    numbers = ps.range(NUM_EMBEDDED * 256)
    text = ps.format("number {}", numbers["id"])
    return numbers.with_column("a", ps.functions.embed_text(text, model="m", dimensions=2))


def job(folder: str) -> None:
    prompts().write_parquet(folder, resume=True)


def collect(folder: str) -> None:
    ps.set_config(cache_dir=folder)
    prompts().collect()


def batches(folder: str) -> None:
    ps.set_config(cache_dir=folder)
    for _ in prompts().iter_batches(batch_size=None, prefetch=1):
        pass


def embeddings(folder: str) -> None:
    ps.set_config(cache_dir=folder)
    texts().collect()


def unrecorded(folder: str) -> None:
    prompts().collect()


KINDS = {each.__name__: each for each in (job, collect, batches, embeddings, unrecorded)}


def run(kind: str, url: str, folder: str) -> None:
    ps.set_provider("openai", base_url=url, api_key="k")
    KINDS[kind](folder)


if __name__ == "__main__":
    run(*sys.argv[1:])
