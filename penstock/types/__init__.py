"""What columns hold: types, schemas, series, and the ways between Python, NumPy and Arrow.

``DataType`` describes values, ``Schema`` columns, ``Series`` is one column in a user's hands. ``to_arrow_array`` and
``to_batch`` take whatever users give, ``default_numpy`` and ``Series`` give it back. Importing this package registers
the extension types with Arrow; it imports no pandas, torch or pydantic.
"""

from penstock.types.arrays import check_one_array, default_numpy, object_array
from penstock.types.cast import cast
from penstock.types.convert import to_arrow_array, to_batch
from penstock.types.datatype import DataType
from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType
from penstock.types.normalize import normalize, normalize_batch
from penstock.types.partial import PartialColumn
from penstock.types.schema import Field, Schema
from penstock.types.series import Series
from penstock.types.supertype import supertype
from penstock.types.unify import unified

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
    "check_one_array",
    "default_numpy",
    "normalize",
    "normalize_batch",
    "object_array",
    "supertype",
    "to_arrow_array",
    "to_batch",
    "unified",
]
