"""The rows with the best scores for each query, found block by block: with NumPy, or with torch on a GPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from penstock.plan.similarity import Metric

Numbers = np.ndarray[Any, Any]

QUERY_ROWS = 1024  # queries that are compared with a block of rows at once
BLOCK_ROWS, GPU_BLOCK_ROWS = 8192, 65_536
BLOCK_ROW_NBYTES = 4096  # a block of wider rows has fewer


def block_rows(vectors: Numbers, max_rows: int) -> int:
    """Return the number of rows of a block: at most ``max_rows``, fewer if they are wide."""
    row_nbytes: int = max(vectors.shape[1] * vectors.itemsize, 1)
    return max(1, min(max_rows, max_rows * BLOCK_ROW_NBYTES // row_nbytes))


class BestRows:
    """The positions of the ``k`` best rows for each query, best first; -1 where there are fewer. Computed by NumPy.

    The score orders rows like the metric: a cosine, a dot product, or minus half the squared distance, up to a constant
    for each query. A row with a score of NaN is never among the best.
    """

    max_block_rows = BLOCK_ROWS

    def __init__(self, queries: Numbers, k: int, metric: Metric) -> None:
        self._metric = metric
        given = self._moved(queries)
        # Near the origin the difference of two large squares does not lose the digits of a small distance.
        self._centre = given.mean(0) if metric == "euclidean" and len(queries) else 0
        self._queries = self._scaled(given)
        self._scores = self._moved(np.full((len(queries), k), -np.inf, queries.dtype))
        self._positions = self._moved(np.full((len(queries), k), -1, np.int64))

    @property
    def positions(self) -> Numbers:
        found: Numbers = self._positions
        return found

    def add(self, vectors: Numbers, positions: Numbers) -> None:
        """Compare a block of rows with the best so far."""
        moved, rows = self._scaled(self._moved(vectors)), self._moved(positions)
        penalty = self._squares(moved) / 2 if self._metric == "euclidean" else None
        for start in range(0, len(self._queries), QUERY_ROWS):
            part = slice(start, start + QUERY_ROWS)
            with np.errstate(all="ignore"):
                scores = self._queries[part] @ moved.T
                if penalty is not None:
                    scores -= penalty
                self._merge(self._scores[part], self._positions[part], scores, rows)

    def _scaled(self, vectors: Any) -> Any:
        match self._metric:
            case "cosine":
                with np.errstate(all="ignore"):
                    return vectors / self._squares(vectors)[:, None] ** 0.5
            case "euclidean":
                return vectors - self._centre
            case "dot":
                return vectors

    def _moved(self, numbers: Numbers) -> Any:
        """Return numbers on the device that computes with them."""
        return numbers

    def _squares(self, vectors: Any) -> Any:
        """Return the squared length of each vector."""
        with np.errstate(all="ignore"):
            return np.einsum("ij,ij->i", vectors, vectors)

    def _merge(self, best: Any, best_positions: Any, scores: Any, positions: Any) -> None:
        """Replace the worst scores in ``best`` by better new scores, in place."""
        k = best.shape[1]
        is_better = scores > best[:, -1:]
        if scores.shape[1] > k and np.count_nonzero(is_better) > 2 * best.size:  # as in the first block
            scores[~is_better] = -np.inf
            columns = np.sort(np.argpartition(scores, -k)[:, -k:])
            rows = np.repeat(np.arange(len(scores)), k)
            columns = columns.reshape(-1)
            chosen = is_better[rows, columns]
            rows, columns = rows[chosen], columns[chosen]
        else:
            rows, columns = np.divmod(np.flatnonzero(is_better), scores.shape[1])  # nonzero is slow in two dimensions
        if not len(rows):
            return
        changed, rank_of_row = np.unique(rows, return_inverse=True)
        all_rows = np.concatenate([np.repeat(np.arange(len(changed)), k), rank_of_row])
        all_scores = np.concatenate([best[changed].reshape(-1), scores[rows, columns]])
        all_positions = np.concatenate([best_positions[changed].reshape(-1), positions[columns]])
        order = np.lexsort((-all_scores, all_rows))  # stable: of equal scores the earlier row comes first
        firsts = np.searchsorted(all_rows[order], np.arange(len(changed)))
        kept = order[firsts[:, None] + np.arange(k)]
        best[changed], best_positions[changed] = all_scores[kept], all_positions[kept]


class TorchBestRows(BestRows):
    """Does the same with torch on a device, which holds the queries and the best scores."""

    max_block_rows = GPU_BLOCK_ROWS

    def __init__(self, queries: Numbers, k: int, metric: Metric, device: str) -> None:
        import torch

        self._torch: Any = torch
        self._device = device
        super().__init__(queries, k, metric)

    @property
    def positions(self) -> Numbers:
        found: Numbers = self._positions.cpu().numpy()
        return found

    def _moved(self, numbers: Numbers) -> Any:
        """Return a copy on the device. On an H200, copying to pinned memory first took longer than it saved."""
        with warnings.catch_warnings():  # torch warns that memory of Arrow is read-only
            warnings.simplefilter("ignore", UserWarning)
            return self._torch.from_numpy(np.ascontiguousarray(numbers)).to(self._device)

    def _squares(self, vectors: Any) -> Any:
        return (vectors * vectors).sum(1)

    def _merge(self, best: Any, best_positions: Any, scores: Any, positions: Any) -> None:
        torch = self._torch
        scores.nan_to_num_(nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        top, columns = scores.topk(min(best.shape[1], scores.shape[1]))
        found = torch.where(top > -np.inf, positions[columns], -1)
        both = torch.cat([best, top], dim=1)
        chosen = both.topk(best.shape[1])
        best_positions[:] = torch.cat([best_positions, found], dim=1).gather(1, chosen.indices)
        best[:] = chosen.values


def best_rows(queries: Numbers, k: int, metric: Metric, *, has_gpu: bool) -> BestRows:
    """Return a collector of the best rows: on the GPU if there is one and torch can use it."""
    if has_gpu:
        try:
            import torch

            if torch.cuda.is_available():
                return TorchBestRows(queries, k, metric, "cuda")
        except ImportError:
            pass
    return BestRows(queries, k, metric)
