"""Penstock: batch inference over large datasets. ``import penstock as ps``."""

from typing import Any

# Loaded now: the module ``penstock.config`` would otherwise take the name of the function.
from penstock.config import config as config, get_config as get_config, set_config as set_config

__version__ = "0.1.0"

# The public names by module. Type checkers read ``__init__.pyi``, which ``make stubs`` writes from this table.
_MODULES = {
    "penstock.ai.provider": ["Provider"],
    "penstock.ai.provider_registry": ["attach_provider", "set_provider"],
    "penstock.config": ["config", "get_config", "set_config"],
    "penstock.runners": ["set_runner_local", "set_runner_ray"],
    "penstock.cost.budget": ["spending"],
    "penstock.dashboard.comparison": ["compare"],
    "penstock.errors": ["FatalError", "RetryAfterError"],
    "penstock.events": ["metrics"],
    "penstock.expr.column": ["Expression", "col", "element", "lit", "when"],
    "penstock.expr.series_methods": ["Series"],
    "penstock.frame.dataframe": ["DataFrame"],
    "penstock.frame.read.files": [
        *("from_files", "from_glob_path", "read_binary_files", "read_csv", "read_images", "read_json"),
        *("read_parquet", "read_text"),
    ],
    "penstock.frame.read.media": ["read_audio", "read_pdf", "read_video_frames"],
    "penstock.frame.read.memory": [
        *("from_arrow", "from_items", "from_numpy", "from_pandas", "from_polars", "from_pydict", "from_pylist"),
        *("range", "read_source"),
    ],
    "penstock.frame.read.tables": [
        *("from_huggingface", "from_ray_dataset", "from_torch", "read_deltalake", "read_huggingface"),
        *("read_iceberg", "read_lance", "read_numpy", "read_sql", "read_webdataset"),
    ],
    "penstock.frame.sql": ["attach_function", "detach_function", "sql"],
    "penstock.frame.sql_expression": ["sql_expr"],
    "penstock.functions": ["coalesce", "format", "unnest"],
    "penstock.functions.aggregates": ["Window"],
    "penstock.functions.ai": ["classify_image", "classify_text", "embed_image", "embed_text", "prompt"],
    "penstock.observe.subscribers": ["attach_subscriber", "detach_subscriber"],
    "penstock.protocols": ["Condition", "ReadRequest", "ReadTask", "Sink", "Source", "Writer"],
    "penstock.storage.file": ["AudioFile", "File", "ImageFile", "VideoFile"],
    "penstock.types": ["DataType", "Field", "Schema"],
    "penstock.udf.decorators": ["cls", "func", "method"],
    "penstock.udf.specs": ["ActorPoolStrategy", "TaskPoolStrategy"],
}
_OWN_SOURCE = "write a Source of about thirty lines with the library of the store: docs/guides/custom-io.md shows one"
_INSTEAD = {
    "read_clickhouse": _OWN_SOURCE,
    "read_mongo": _OWN_SOURCE,
    "read_orc": "use from_arrow(pyarrow.dataset.dataset(path, format='orc').to_table())",
    "udaf": "use groupby(keys).map_groups(function)",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Load a public name, or else a module of the package, when it is first used: ``penstock --help`` needs neither."""
    import importlib
    import sys

    if name in _MODULE_OF:
        globals()[name] = found = getattr(__import__(_MODULE_OF[name], fromlist=[name]), name)
        return found
    try:
        return importlib.import_module(f"penstock.{name}")
    except ModuleNotFoundError as exc:
        if exc.name != f"penstock.{name}":
            raise
    if name in _INSTEAD:
        raise AttributeError(f"Penstock has no {name}; {_INSTEAD[name]}.")
    # With these arguments a traceback suggests the nearest name.
    raise AttributeError(f"module 'penstock' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return [*globals(), *__all__]
