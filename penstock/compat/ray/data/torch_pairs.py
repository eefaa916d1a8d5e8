"""``DataIterator.to_torch``: batches as pairs of features and labels. Imported only when used: it imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch.utils.data

from penstock.compat.ray.data.result_verbs import DatasetResults
from penstock.errors import InvalidArgumentError, TypeMismatchError


class TorchPairs(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
    """Pairs of features and labels, a batch each; the query runs each time they are iterated.

    Features are one tensor with a column for each of ``feature_columns``, or one tensor for each list in it.
    """

    def __init__(
        self, dataset: DatasetResults, *, label_column: str | None = None, feature_columns: Any = None,
        label_column_dtype: torch.dtype | None = None, feature_column_dtypes: Any = None, batch_size: int = 1,
        unsqueeze_label_tensor: bool = True, unsqueeze_feature_tensors: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        self._dataset, self._options = dataset, {**options, "batch_size": batch_size}
        self._label, self._label_dtype, self._unsqueezes_label = (
            label_column,
            label_column_dtype,
            unsqueeze_label_tensor,
        )
        self._features, self._dtypes = feature_columns or None, feature_column_dtypes
        self._unsqueezes = unsqueeze_feature_tensors
        _check_dtypes(self._features, self._dtypes)

    def __iter__(self) -> Iterator[tuple[Any, torch.Tensor | None]]:
        for batch in self._dataset.iter_batches(batch_format="torch", **self._options):
            label = None
            if self._label is not None:
                label = _side_by_side(batch, [self._label], self._label_dtype, self._unsqueezes_label)
            yield self._of_features({name: each for name, each in batch.items() if name != self._label}), label

    def _of_features(self, batch: Mapping[str, torch.Tensor]) -> Any:
        wanted, dtypes = self._features or list(batch), self._dtypes
        if isinstance(wanted, Mapping):
            given = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(wanted, dtypes)
            return {key: _side_by_side(batch, names, given[key], self._unsqueezes) for key, names in wanted.items()}
        if isinstance(wanted[0], str):
            return _side_by_side(batch, wanted, dtypes, self._unsqueezes)
        each = dtypes if isinstance(dtypes, Sequence) else [dtypes] * len(wanted)
        return [_side_by_side(batch, names, dtype, self._unsqueezes) for names, dtype in zip(wanted, each, strict=True)]


def _side_by_side(
    batch: Mapping[str, torch.Tensor], names: Sequence[str], dtype: torch.dtype | None, unsqueezes: bool
) -> torch.Tensor:
    tensors = [batch[name].to(dtype) if dtype is not None else batch[name] for name in names]
    columns = [tensor.unsqueeze(1) for tensor in tensors] if unsqueezes else tensors
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)


def _check_dtypes(features: Any, dtypes: Any) -> None:
    """Refuse types that have another form than the lists of columns."""
    if dtypes is None or isinstance(dtypes, torch.dtype):
        return
    of_lists = features is not None and not isinstance(features, Mapping) and not isinstance(features[0], str)
    form: Any = Mapping if isinstance(features, Mapping) else Sequence if of_lists else torch.dtype
    if not isinstance(dtypes, form):
        raise TypeMismatchError(f"to_torch: feature_column_dtypes={dtypes!r} must have the form of feature_columns")
    if (set(features) != set(dtypes)) if form is Mapping else len(features) != len(dtypes):
        raise InvalidArgumentError("to_torch: feature_column_dtypes= must have a type for each of feature_columns=")
