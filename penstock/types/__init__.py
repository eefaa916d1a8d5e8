"""Types, schemas and series, and conversions between Python, NumPy and Arrow.

frozen, extension, normalize, names    quick frozen classes; Arrow's extension types; basic types; types as text
datatype                               ``DataType``: the type of a column
schema, supertype, hints, predicates   columns; the type of two types; Python hints; kinds of types
arrays, images, plain, encode, cast    NumPy arrays, pictures, plain values, any values; lossless casts
convert                                ``to_arrow_array`` and ``to_batch`` convert what users pass in
series                                 ``Series``: one column for users
ipc, content, row_numbers, row_ranges  batches as bytes, digests, and the numbers that rows carry

Each line imports only from those above it. Importing this room registers the extension types with Arrow; it imports
no pandas, torch or pydantic.
"""

from penstock.types.cast import cast, joined, unified
from penstock.types.convert import to_arrow_array, to_batch
from penstock.types.datatype import DataType, connect
from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType
from penstock.types.hints import dtype_from_hint
from penstock.types.ndarrays import default_numpy, object_array
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
