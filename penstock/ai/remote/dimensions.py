"""How many numbers the vectors of a model have, for models that nobody has a table of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.ai.provider import NDArray
from penstock.ai.remote.http import ApiClient
from penstock.cache.keys import canonical, key_of
from penstock.errors import InvalidAnswerError
from penstock.protocols import Ledger

if TYPE_CHECKING:
    from penstock.ai.remote.embedder import EmbeddingWire


def counted_vectors(vectors: NDArray, num_texts: int, dimensions: int | None = None) -> NDArray:
    """Return vectors that are as many, and as long, as they must be."""
    count, length = vectors.shape
    if count != num_texts or not length or (dimensions is not None and length != dimensions):
        as_many = "not as many" if dimensions is None else f"not as many of {dimensions}"
        raise InvalidAnswerError(
            f"{num_texts} texts were sent; {count} vectors of {length} numbers came back, {as_many}"
        )
    return vectors


def kept_dimensions(ledger: Ledger | None, model: Mapping[str, str], probe: Callable[[], int]) -> int:
    """Return how many numbers a model's vectors have: what a ledger has of it, or what ``probe`` gives, kept there."""
    if ledger is None:
        return probe()
    try:
        key = key_of(canonical({"dimensions of": model}))
        if (known := ledger.get([key]).get(key)) is not None:
            return int(known)
        dimensions = probe()
        ledger.put(key, str(dimensions).encode())
        return dimensions
    finally:
        ledger.close()


_dimensions: dict[tuple[str, str], int] = {}


def probed(key: tuple[str, str], make_client: Callable[[], ApiClient], wire: EmbeddingWire) -> int:
    """Return how many numbers a model's vectors have, by asking for one, once a process.

    For models that nobody has a table of, as local servers have: the type of the column is part of the plan.
    """
    if key not in _dimensions:

        async def ask() -> int:
            client = make_client()
            client.open()
            try:
                vectors, _ = await client.ask(
                    wire.call(["dimensions"]), lambda body: counted_vectors(wire.read(body), 1)
                )
                return int(vectors.shape[1])
            finally:
                await client.close()

        _dimensions[key] = run_apart(ask)
    return _dimensions[key]


def run_apart(ask: Callable[[], Any]) -> Any:
    """Run a coroutine to its end on a thread of its own, as the caller may be inside an event loop (a notebook is)."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = asyncio.run(ask())
        except BaseException as exc:
            outcome["error"] = exc

    thread = threading.Thread(target=run, name="penstock-probe")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]
