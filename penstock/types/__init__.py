"""Types, schemas and series, and conversions between Python, NumPy and Arrow.

frozen         frozen dataclasses that are quick to define
extension      Arrow extension types: embeddings, tensors, images, files, Python objects
normalize      large, view, dictionary and run-end encoded types become basic ones
names          types as text, and back
predicates     the kinds of types: ``is_list()``, ``is_numeric()`` ...
datatype       ``DataType``: the type of a column
schema         ``Schema``: names and types of columns
supertype      the type that holds the values of two types
hints          Python type hints to types
plain          plain Python values to Arrow, without pandas
ndarrays       ndarrays to Arrow and back
image_columns  columns of images
encode         any Python values to Arrow
cast           lossless conversion between types
convert        ``to_arrow_array`` and ``to_batch`` convert what users pass in
series         ``Series``: one column, as batch functions see it
ipc            batches as bytes, for other processes
digests        hashes of Arrow data
row_numbers, row_ranges    the numbers that rows carry

Each line imports only from those above it. Importing this room registers the extension types with Arrow; it imports
no pandas, torch or pydantic. It may import ``storage`` and the modules at the top.
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
