"""The relevance of texts for queries, by a reranker that takes batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.ai.cached_model import VECTORS, CachedModel
from penstock.ai.provider import NDArray, Reranker
from penstock.errors import InvalidAnswerError
from penstock.types import Series


class BatchRelevance:
    """A column of scores. If the query or the text of a row is null, its score is null."""

    def __init__(self, model: Reranker) -> None:
        self._model = CachedModel(model, VECTORS)
        self.close = self._model.close

    def score(self, queries: Series, texts: Series) -> pa.Array:
        pairs = list(zip(queries.to_pylist(), texts.to_pylist(), strict=True))
        is_null = np.array([None in pair for pair in pairs], bool)
        scores = np.zeros(len(pairs))
        if given := [pair for pair in pairs if None not in pair]:
            scores[~is_null] = np.concatenate(list(self._model.results(given, self._relevance)))
        return pa.array(scores, mask=is_null)

    def _relevance(self, pairs: Sequence[tuple[str, str]]) -> NDArray:
        """Return a vector of one number for each pair, as the cache keeps them."""
        model = self._model.loaded()
        scores = np.asarray(model.relevance(pairs), np.float32)
        if scores.shape != (len(pairs),):
            raise InvalidAnswerError(
                f"{type(model).__name__}.relevance was given {len(pairs)} pairs and returned an array of shape "
                f"{scores.shape}; return one number for each"
            )
        return scores[:, None]
