"""``ray.data``: readers, ``Dataset``, aggregations and expressions under the names and parameters of Ray Data."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any

import penstock as ps
from penstock.compat.ray.data import aggregate, expressions
from penstock.compat.ray.data.dataset import DataIterator, Dataset
from penstock.compat.ray.data.grouped import GroupedData
from penstock.compat.ray.data.options import PLACEMENT, RESOURCES
from penstock.compat.translation import refusal, translated
from penstock.types import Schema
from penstock.udf.specs import ActorPoolStrategy, TaskPoolStrategy

__all__ = ["ActorPoolStrategy", "DataContext", "DataIterator", "Dataset", "ExecutionOptions", "FileShuffleConfig",
    "GroupedData", "SaveMode", "Schema", "TaskPoolStrategy", "aggregate", "expressions", "range_tensor"]  # fmt: skip


def _dataset(frame: ps.DataFrame) -> Dataset:
    return Dataset(frame._plan)


def _partitioning(given: Any) -> bool:
    """Return whether folders are hive partitions; other schemes are refused."""
    if getattr(given, "style", given) == "hive":
        return True
    raise refusal(f"partitioning={given!r}", "only 'hive' partitioning is known")


def _reader(name: str, original: str | None = None, **defaults: Any) -> Callable[..., Dataset]:
    return translated(
        getattr(ps, original or name),
        f"ray.data.{name}",
        renamed={
            **({"paths": "path", "include_paths": "file_path_column"} if name not in _OWN_PATHS else {}),
            "partitioning": "hive_partitioning",
            "connection_factory": "conn",
            **({"dataset": "repo"} if name == "read_huggingface" else {}),
        },
        values={"include_paths": lambda wanted: ("path" if wanted else None) if name not in _OWN_PATHS else wanted,
                "partitioning": _partitioning},
        ignored=PLACEMENT | RESOURCES,
        defaults=defaults,
        returns=_dataset,
    )  # fmt: skip


_OWN_PATHS = ("read_images", "read_webdataset")
_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "read_parquet": ("read_parquet", {"hive_partitioning": True}),
    **{f"read_{kind}": (f"read_{kind}", {}) for kind in ("csv", "json", "text", "binary_files", "numpy", "images")},
    **{f"read_{kind}": (f"read_{kind}", {}) for kind in ("sql", "lance", "iceberg", "webdataset", "audio")},
    "read_delta": ("read_deltalake", {}),
    "read_videos": ("read_video_frames", {}),
    **{f"from_{kind}": (f"from_{kind}", {}) for kind in ("items", "numpy", "pandas", "arrow", "huggingface", "torch")},
    "from_blocks": ("from_arrow", {}),
    "range": ("range", {}),
}
for _name, (_original, _defaults) in _READERS.items():
    globals()[_name] = _reader(_name, _original, **_defaults)
__all__ += list(_READERS)  # made from the table above


def range_tensor(n: int, *, shape: tuple[int, ...] = (1,), **options: Any) -> Dataset:
    """Return ``n`` rows with a tensor of this shape each, filled with the number of the row."""
    import numpy as np

    return _dataset(ps.from_numpy(np.broadcast_to(np.arange(n).reshape(n, *[1] * len(shape)), (n, *shape)).copy()))


class SaveMode(Enum):
    """The modes of writes; a new file or more files are the default."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"


class FileShuffleConfig(SimpleNamespace):
    """The order of files, which is no promise here."""


class ExecutionOptions(SimpleNamespace):
    """Limits of Ray's scheduler. Penstock schedules by ``ps.set_config(memory_limit=..., num_threads=...)``."""


class DataContext(SimpleNamespace):
    """Settings of Ray's scheduler: they can be set and read, and change nothing."""

    _current: DataContext | None = None

    @classmethod
    def get_current(cls) -> DataContext:
        if cls._current is None:
            cls._current = cls(execution_options=ExecutionOptions())
        return cls._current


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise AttributeError(f"Penstock cannot honour ray.data.{name}; docs/MIGRATING_FROM_RAY_DATA.md lists all names.")
