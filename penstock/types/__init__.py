"""Types, schemas and series, and conversions between Python, NumPy and Arrow.

``DataType`` describes values, ``Schema`` columns; ``Series`` is one column for users. ``to_arrow_array`` and
``to_batch`` convert what users pass in, ``default_numpy`` and ``Series`` convert it back. Importing this package
registers the extension types with Arrow; it imports no pandas, torch or pydantic.

Layers, each importing only from those before: ``frozen``, ``extension``, ``normalize``, ``names``; ``datatype``;
``schema``, ``supertype``, ``hints``, ``arrays``; ``encode``, ``cast``; ``convert``; ``series``.
"""

from penstock.types.arrays import default_numpy, object_array
from penstock.types.cast import cast, joined, unified
from penstock.types.convert import to_arrow_array, to_batch
from penstock.types.datatype import DataType, connect
from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType
from penstock.types.hints import dtype_from_hint
from penstock.types.normalize import normalize, normalize_batch
from penstock.types.schema import Field, Schema
from penstock.types.series import PartialColumn, Series
from penstock.types.supertype import supertype

__all__ = [
    "DataType",
    "EmbeddingType",
    "Field",
    "FileType",
    "ImageType",
    "PartialColumn",
    "PythonType",
    "Schema",
    "Series",
    "TensorType",
    "cast",
    "default_numpy",
    "joined",
    "normalize",
    "normalize_batch",
    "object_array",
    "supertype",
    "to_arrow_array",
    "to_batch",
    "unified",
]

connect(hint=dtype_from_hint, value=lambda value: DataType(to_arrow_array([value], None, what="value").type))
