"""Embeddings of columns: pack texts into calls, skip nulls, split long texts, isolate texts that are refused."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa

from penstock.ai.cached_model import VECTORS, CachedModel
from penstock.ai.client.limits.embedding_limits import input_limits
from penstock.ai.provider import Embedder, NDArray, loaded
from penstock.ai.providers.remote_embedder import ApiEmbedder
from penstock.cost.usage import estimated_tokens
from penstock.errors import (
    ContentFilteredError,
    FatalError,
    InvalidAnswerError,
    ModelNotFoundError,
    ProviderError,
    ProviderUnavailableError,
    RequestRefusedError,
)
from penstock.types import DataType, PartialColumn, Series, to_arrow_array

Answer = TypeVar("Answer")
LongInput = Literal["truncate", "average"]
SHORTER = 0.5  # size of the parts of a text that was refused as too long
SHORTEST = 64  # characters; every model accepts this many


def embedding_column(vectors: Iterable[NDArray | None], dimensions: int) -> pa.Array:
    """Return a column with one vector for each row; None is null."""
    rows = vectors if isinstance(vectors, np.ndarray) else list(vectors)
    return to_arrow_array(rows, DataType.embedding(DataType.float32(), dimensions), what="embedding")


def checked_vectors(found: Any, num_inputs: int, model: Embedder) -> NDArray:
    """Return the vectors of a model as an array of float32. An error about their shape names the model's class."""
    wanted = (num_inputs, model.dimensions)
    try:
        with np.errstate(over="ignore"):  # infinity is the error of its row
            vectors = np.asarray(found, np.float32)
        got = f"an array of shape {vectors.shape}"
    except (TypeError, ValueError):
        vectors, got = None, f"a {type(found).__name__} that is not an array of numbers"
    if vectors is None or vectors.shape != wanted:
        raise InvalidAnswerError(
            f"{type(model).__name__}.embed was given {num_inputs} inputs and returned {got}; return one of shape "
            f"{wanted}"
        )
    return vectors


def not_finite(model: Embedder) -> InvalidAnswerError:
    """Return the error of a row whose vector has NaN or infinity: it would spoil every distance and mean."""
    return InvalidAnswerError(
        f"the vector that {model.model_name or type(model).__name__} returned has NaN or infinity"
    )


class BatchEmbeddings:
    """Embeddings by a model that takes batches, on this machine."""

    def __init__(self, model: Embedder) -> None:
        self._model = CachedModel(model, VECTORS)
        self.close = self._model.close

    def embed(self, column: Series) -> PartialColumn:
        model = self._model.model
        values = column.to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None]
        found = self._embedded([values[row] for row in rows]) if rows else np.empty((0, model.dimensions), np.float32)
        failures: dict[int, Exception] = {
            rows[at]: not_finite(model) for at in np.flatnonzero(~np.isfinite(found).all(axis=1))
        }
        if len(rows) == len(values) and not failures:
            return PartialColumn(embedding_column(found, model.dimensions), {})
        vectors: list[NDArray | None] = [None] * len(values)
        for row, vector in zip(rows, found, strict=True):
            vectors[row] = None if row in failures else vector
        return PartialColumn(embedding_column(vectors, model.dimensions), failures)

    def _embedded(self, values: Sequence[Any]) -> NDArray:
        def compute(values: Sequence[Any]) -> NDArray:
            model = self._model.loaded()
            return checked_vectors(model.embed(values), len(values), model)

        found = self._model.results(values, compute)
        return found if isinstance(found, np.ndarray) else np.stack(list(found))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row's text, or a part of it, with its weight in the row's vector."""

    row: int
    text: str
    weight: float = 1.0


_Embedded = tuple[_Piece, NDArray]


class PackedEmbeddings:
    """Embeddings by a remote model. A call holds as many texts as the provider accepts. A bad text fails alone."""

    def __init__(self, model: Embedder, long_input: LongInput = "truncate") -> None:
        self._model = loaded(model)
        self._memo = self._model.cached if isinstance(self._model, ApiEmbedder) else None
        self._long_input = long_input
        self._limits = input_limits(self._model.base_url, self._model.model_name)
        self._learning = asyncio.Lock()
        self.close = self._model.close

    async def embed(self, column: Series) -> PartialColumn:
        texts = column.to_pylist()
        pieces = self._fitted(_Piece(row, text) for row, text in enumerate(texts) if text is not None)
        failures: dict[int, Exception] = {}
        sums: list[NDArray | None] = [None] * len(texts)
        num_parts = [0] * len(texts)

        def add(piece: _Piece, vector: NDArray) -> None:
            if not np.isfinite(vector).all():
                failures[piece.row] = not_finite(self._model)
                return
            share, before = vector * np.float32(piece.weight), sums[piece.row]
            sums[piece.row] = share if before is None else before + share
            num_parts[piece.row] += 1

        async def send(packed: Sequence[_Piece]) -> None:
            for piece, vector in await self._vectors(packed, failures):
                add(piece, vector)

        cached = self._cached(pieces)
        for piece in pieces:
            if piece.text in cached:
                add(piece, cached[piece.text])
        await _together(send(packed) for packed in self._packed([p for p in pieces if p.text not in cached]))
        for row, vector in enumerate(sums):
            if row in failures:
                sums[row] = None
            elif vector is not None and num_parts[row] > 1:
                sums[row] = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return PartialColumn(embedding_column(sums, self._model.dimensions), failures)

    def _fitted(self, pieces: Iterable[_Piece]) -> list[_Piece]:
        """Return texts, or as much of them as the model accepts."""
        limit = self._model.max_input_tokens or sys.maxsize
        fitted: list[_Piece] = []
        for piece in pieces:
            if (
                len(piece.text) < limit and not self._limits.is_known
            ):  # the estimate counts at most one token for a character
                fitted.append(piece)
                continue
            tokens = estimated_tokens(piece.text)
            most = min(limit, self._limits.cut(tokens) or limit)
            fitted += [piece] if tokens <= most else self._cut(piece, max(1, len(piece.text) * most // tokens))
        return fitted

    def _cut(self, piece: _Piece, size: int) -> list[_Piece]:
        """Return the first ``size`` characters of a text that is too long, or the whole text in parts of that size."""
        text = piece.text
        if self._long_input == "truncate":
            return [replace(piece, text=text[:size])]
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        return [replace(piece, text=part, weight=piece.weight * len(part) / len(text)) for part in parts]

    def _cached(self, pieces: Sequence[_Piece]) -> dict[str, NDArray]:
        return {} if self._memo is None else self._memo.look_up([piece.text for piece in pieces])

    def _packed(self, pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
        """Yield the pieces of each call."""
        packed: list[_Piece] = []
        max_items = min(self._model.max_items, self._limits.max_items or self._model.max_items)
        num_tokens = 0
        for piece in pieces:
            tokens = estimated_tokens(piece.text)
            is_full = len(packed) >= max_items or num_tokens + tokens > (self._model.max_tokens or np.inf)
            if packed and is_full:
                yield packed
                packed, num_tokens = [], 0
            packed.append(piece)
            num_tokens += tokens
        if packed:
            yield packed

    async def _vectors(
        self, packed: Sequence[_Piece], failures: dict[int, Exception], is_learning: bool = False
    ) -> list[_Embedded]:
        """Return the vectors of pieces. A call that fails because of its texts is halved until the bad text is
        alone."""
        try:
            return await self._sent(packed, failures)
        except FatalError:
            raise
        except ModelNotFoundError as exc:  # whatever the texts are
            failures.update((piece.row, exc) for piece in packed)
            return []
        except (RequestRefusedError, ContentFilteredError, ProviderUnavailableError) as exc:
            is_late = _is_too_long(exc) and self._fitted(packed) != packed  # the limits were learned in the meantime
            if len(packed) == 1 and not is_late:
                return await self._alone(packed[0], exc, failures, is_learning)
            if is_late or (_is_too_long(exc) and is_learning):
                return await self._in_turn(packed, failures)
            if _is_too_long(exc) and not self._limits.is_known:
                async with self._learning:  # other refused calls wait for the limits that this one finds
                    return await self._in_turn(packed, failures)
            middle = len(packed) // 2
            halves = [self._vectors(part, failures, is_learning) for part in (packed[:middle], packed[middle:])]
            found = list(itertools.chain.from_iterable(await _together(halves)))
            if len(found) == len(packed) and not _is_too_long(exc):
                self._limits.refuse_call(len(packed))
            return found
        except Exception as exc:
            failures.update((piece.row, exc) for piece in packed)
            return []

    async def _in_turn(self, packed: Sequence[_Piece], failures: dict[int, Exception]) -> list[_Embedded]:
        """Return the vectors of a call with texts that are too long: one half first, to use its limits."""
        found: list[_Embedded] = []
        middle = len(packed) // 2 if self._fitted(packed) == packed else 0
        for half in (packed[:middle], packed[middle:]):
            for part in self._packed(self._fitted(half)):
                found += await self._vectors(part, failures, is_learning=True)
        return found

    async def _alone(
        self, piece: _Piece, error: ProviderError, failures: dict[int, Exception], is_learning: bool
    ) -> list[_Embedded]:
        """Return the vectors of a refused text. If it is too long, send less of it, because the token count is an
        estimate.

        The parts go one after the other, so that a text that the server refuses for another reason costs few calls.
        """
        if len(piece.text) <= SHORTEST or not _is_too_long(error):
            failures[piece.row] = error
            return []
        found: list[_Embedded] = []
        parts = self._cut(piece, math.ceil(len(piece.text) * SHORTER))
        for part in parts:
            cached = self._cached([part])
            found += [(part, cached[part.text])] if cached else await self._vectors([part], failures, is_learning)
            if piece.row in failures:
                return []
        if self._limits.has_accepted(estimated_tokens(parts[0].text)):
            self._limits.refuse_text(estimated_tokens(piece.text))
        return found

    async def _sent(self, packed: Sequence[_Piece], failures: dict[int, Exception]) -> list[_Embedded]:
        vectors = self._model.embed([piece.text for piece in packed])
        assert isinstance(vectors, Awaitable)
        answer, odd = await vectors, list[_Piece]()
        try:
            found = list(zip(packed, checked_vectors(answer, len(packed), self._model), strict=True))
        except InvalidAnswerError:
            found, odd = self._told_apart(answer, packed)
            if not found:
                raise
        self._limits.accept(len(packed), estimated_tokens(max((piece.text for piece in packed), key=len)))
        if self._memo is not None:
            for piece, vector in found:
                self._memo.put(piece.text, vector)
        for piece in odd:
            found += await self._vectors([piece], failures)
        return found

    def _told_apart(self, answer: Any, packed: Sequence[_Piece]) -> tuple[list[_Embedded], list[_Piece]]:
        """Separate vectors of the right length, with their texts, from the texts to ask for again, each alone."""
        found, odd = list[_Embedded](), list[_Piece]()
        if isinstance(answer, Sequence) and len(answer) == len(packed):
            for piece, vector in zip(packed, answer, strict=True):
                try:
                    found.append((piece, checked_vectors([vector], 1, self._model)[0]))
                except InvalidAnswerError:
                    odd.append(piece)
        return found, odd


async def _together(calls: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """Return the results of calls. The first error cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _is_too_long(error: ProviderError) -> bool:
    words = "" if isinstance(error, ProviderUnavailableError) else str(error).lower()
    return "token" in words or "context length" in words or "too long" in words
