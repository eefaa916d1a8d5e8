"""Penstock: batch inference over large datasets. ``import penstock as ps``."""

from typing import TYPE_CHECKING, Any

from penstock.config import config, get_config, set_config

if TYPE_CHECKING:
    from penstock.ai.provider import Provider
    from penstock.ai.registry import attach_provider, set_provider
    from penstock.engine.runners import set_runner_local, set_runner_ray
    from penstock.errors import FatalError, RetryAfterError
    from penstock.expr.column import Expression, col, element, lit, when
    from penstock.frame.dataframe import DataFrame
    from penstock.frame.read.files import (
        from_files,
        from_glob_path,
        read_binary_files,
        read_csv,
        read_images,
        read_json,
        read_parquet,
        read_text,
    )
    from penstock.frame.read.media import read_audio, read_pdf, read_video_frames
    from penstock.frame.read.memory import (
        from_arrow,
        from_items,
        from_numpy,
        from_pandas,
        from_pydict,
        from_pylist,
        range,
        read_source,
    )
    from penstock.frame.read.tables import (
        from_huggingface,
        from_ray_dataset,
        from_torch,
        read_deltalake,
        read_huggingface,
        read_iceberg,
        read_lance,
        read_numpy,
        read_orc,
        read_sql,
        read_webdataset,
    )
    from penstock.frame.sql import attach_function, detach_function, sql
    from penstock.frame.sql_expression import sql_expr
    from penstock.frame.window import Window
    from penstock.functions import (
        classify_image,
        classify_text,
        coalesce,
        embed_image,
        embed_text,
        format,
        prompt,
        unnest,
    )
    from penstock.observe import metrics
    from penstock.observe.subscribers import attach_subscriber, detach_subscriber
    from penstock.protocols import Condition, ReadRequest, ReadTask, Sink, Source, Writer
    from penstock.storage.file import AudioFile, File, ImageFile, VideoFile
    from penstock.types import DataType, Field, Schema, Series
    from penstock.udf.aggregates import udaf
    from penstock.udf.decorators import cls, func, method
    from penstock.udf.specs import ActorPoolStrategy, TaskPoolStrategy

__version__ = "0.1.0"

__all__ = [
    "ActorPoolStrategy", "AudioFile", "Condition", "DataFrame", "DataType", "Expression", "FatalError", "Field",
    "File", "ImageFile", "Provider", "ReadRequest", "ReadTask", "RetryAfterError", "Schema", "Series", "Sink",
    "Source", "TaskPoolStrategy", "VideoFile", "Window", "Writer", "attach_function", "attach_provider",
    "attach_subscriber", "classify_image", "classify_text", "cls", "coalesce", "col", "config", "detach_function",
    "detach_subscriber", "element", "embed_image", "embed_text", "format", "from_arrow", "from_files",
    "from_glob_path", "from_huggingface", "from_items", "from_numpy", "from_pandas", "from_pydict", "from_pylist",
    "from_ray_dataset", "from_torch", "func", "get_config", "lit", "method", "metrics", "prompt", "range",
    "read_audio", "read_binary_files", "read_csv", "read_deltalake", "read_huggingface", "read_iceberg",
    "read_images", "read_json", "read_lance", "read_numpy", "read_orc", "read_parquet", "read_pdf", "read_source",
    "read_sql", "read_text", "read_video_frames", "read_webdataset", "set_config", "set_provider", "set_runner_local",
    "set_runner_ray", "sql", "sql_expr", "udaf", "unnest", "when",
]  # fmt: skip

# The module of each name, apart from the settings above and the functions, which are in ``penstock.functions``.
_MODULES = {
    "penstock.ai.provider": ["Provider"],
    "penstock.ai.registry": ["attach_provider", "set_provider"],
    "penstock.engine.runners": ["set_runner_local", "set_runner_ray"],
    "penstock.errors": ["FatalError", "RetryAfterError"],
    "penstock.expr.column": ["Expression", "col", "element", "lit", "when"],
    "penstock.expr.series_methods": ["Series"],
    "penstock.frame.dataframe": ["DataFrame"],
    "penstock.frame.read.files": [
        *("from_files", "from_glob_path", "read_binary_files", "read_csv", "read_images", "read_json"),
        *("read_parquet", "read_text"),
    ],
    "penstock.frame.read.media": ["read_audio", "read_pdf", "read_video_frames"],
    "penstock.frame.read.memory": [
        *("from_arrow", "from_items", "from_numpy", "from_pandas", "from_pydict", "from_pylist", "range"),
        "read_source",
    ],
    "penstock.frame.read.tables": [
        *("from_huggingface", "from_ray_dataset", "from_torch", "read_deltalake", "read_huggingface"),
        *("read_iceberg", "read_lance", "read_numpy", "read_orc", "read_sql", "read_webdataset"),
    ],
    "penstock.frame.sql": ["attach_function", "detach_function", "sql"],
    "penstock.frame.sql_expression": ["sql_expr"],
    "penstock.frame.window": ["Window"],
    "penstock.observe": ["metrics"],
    "penstock.observe.subscribers": ["attach_subscriber", "detach_subscriber"],
    "penstock.protocols": ["Condition", "ReadRequest", "ReadTask", "Sink", "Source", "Writer"],
    "penstock.storage.file": ["AudioFile", "File", "ImageFile", "VideoFile"],
    "penstock.types": ["DataType", "Field", "Schema"],
    "penstock.udf.aggregates": ["udaf"],
    "penstock.udf.decorators": ["cls", "func", "method"],
    "penstock.udf.specs": ["ActorPoolStrategy", "TaskPoolStrategy"],
}


def __getattr__(name: str) -> Any:
    """Load a public name, or else a module of the package, when it is first used: ``penstock --help`` needs neither."""
    import importlib
    import sys

    if name in __all__:
        module = next((module for module, names in _MODULES.items() if name in names), "penstock.functions")
        globals()[name] = found = getattr(__import__(module, fromlist=[name]), name)
        return found
    try:
        return importlib.import_module(f"penstock.{name}")
    except ModuleNotFoundError as exc:
        if exc.name != f"penstock.{name}":
            raise
    # With these arguments a traceback suggests the nearest name.
    raise AttributeError(f"module 'penstock' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return [*globals(), *__all__]
