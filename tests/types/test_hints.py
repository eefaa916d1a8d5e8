from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import sys
import typing
import uuid
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import numpy as np
import numpy.typing as npt
import pydantic
import pytest

from penstock.storage.file import File, VideoFile
from penstock.types import DataType, to_arrow_array

D = DataType


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: float


class Review(TypedDict, total=False):
    text: str
    stars: typing.NotRequired[int]


@dataclasses.dataclass
class Tag:
    name: str
    weight: float | None = None


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node]


class Address(pydantic.BaseModel):
    city: str
    zip: int | None = None


class Person(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=0)]
    colour: Colour
    mood: Literal["good", "bad"]
    home: Address
    others: list[Address] = []
    tags: dict[str, float] = {}
    nickname: Optional[str] = None  # noqa: UP045


UserId = typing.NewType("UserId", int)
ADDRESS = D.struct({"city": "string", "zip": "int64"})


@pytest.mark.parametrize(
    ("hint", "dtype"),
    [
        (bool, D.bool()),
        (int, D.int64()),
        (float, D.float64()),
        (str, D.string()),
        (bytes, D.binary()),
        (None, D.null()),
        (datetime.datetime, D.timestamp()),
        (datetime.date, D.date()),
        (datetime.time, D.time()),
        (datetime.timedelta, D.duration()),
        (decimal.Decimal, D.decimal128(38, 18)),
        (uuid.UUID, D.string()),
        (pathlib.Path, D.string()),
        (Optional[int], D.int64()),  # noqa: UP045
        (int | None, D.int64()),
        (int | float, D.float64()),
        (int | str, D.python()),
        (list[str], D.list("string")),
        (list[list[int | None]], D.list(D.list("int64"))),
        (collections.abc.Sequence[int], D.list("int64")),
        (set[str], D.list("string")),
        (list, D.python()),
        (dict, D.python()),
        (dict[str, float], D.map("string", "float64")),
        (dict[str, Any], D.map("string", D.python())),
        (tuple[int, str], D.struct({"0": "int64", "1": "string"})),
        (tuple[int, ...], D.list("int64")),
        (Literal["a", "b"], D.string()),
        (Literal[1, 2], D.int64()),
        (Literal["a", 1], D.python()),
        (Colour, D.string()),
        (Level, D.int64()),
        (Point, D.struct({"x": "int64", "y": "float64"})),
        (Review, D.struct({"text": "string", "stars": "int64"})),
        (Tag, D.struct({"name": "string", "weight": "float64"})),
        (Node, D.struct({"value": "int64", "children": D.list(D.python())})),
        (
            Person,
            D.struct(
                {
                    "name": "string",
                    "age": "int64",
                    "colour": "string",
                    "mood": "string",
                    "home": ADDRESS,
                    "others": D.list(ADDRESS),
                    "tags": D.map("string", "float64"),
                    "nickname": "string",
                }
            ),
        ),
        (np.float32, D.float32()),
        (np.bool_, D.bool()),
        (npt.NDArray[np.float32], D.tensor("float32")),
        (npt.NDArray[np.uint8] | None, D.tensor("uint8")),
        (npt.NDArray[Any], D.python()),
        (np.ndarray, D.python()),
        (Annotated[str, "doc"], D.string()),
        (UserId, D.int64()),
        (Any, D.python()),
        (object, D.python()),
        (D.int8(), D.int8()),
        ("list[int]", D.list("int64")),
    ],
)
def test_hints(hint: Any, dtype: DataType) -> None:
    assert D.from_hint(hint) == dtype


def test_images_and_files_are_known_by_name() -> None:
    pil_image = type("Image", (), {"__module__": "PIL.Image"})
    png_image = type("PngImageFile", (pil_image,), {"__module__": "PIL.PngImagePlugin"})
    assert D.from_hint(pil_image) == D.from_hint(png_image) == D.image()
    assert D.from_hint(File) == D.from_hint(type("Mine", (File,), {})) == D.file()
    assert D.from_hint(VideoFile) == D.file("video")
    assert D.from_hint(type("File", (), {"__module__": "elsewhere"})) == D.python()


def test_torch_types() -> None:
    import torch

    assert D.of(torch.float32) == D.float32()
    assert D.from_hint(torch.Tensor) == D.python()


def test_importing_types_loads_no_heavy_package() -> None:
    import subprocess

    code = "import sys, penstock.types; print([m for m in ('pandas', 'torch', 'pydantic', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_addresses_and_aliases() -> None:
    import ipaddress

    from pydantic import AnyUrl, AwareDatetime, EmailStr, HttpUrl, JsonValue, PastDate
    from typing_extensions import TypeAliasType

    for hint in (AnyUrl, HttpUrl, EmailStr, ipaddress.IPv4Address, ipaddress.IPv6Network):
        assert D.from_hint(hint) == D.string()
    assert D.from_hint(AwareDatetime) == D.timestamp("us", "UTC")
    assert D.from_hint(PastDate) == D.date()
    assert D.from_hint(TypeAliasType("Names", list[str])) == D.list(D.string())
    assert D.from_hint(JsonValue) == D.python()  # it contains itself
    values = [AnyUrl("https://example.com/a"), None, "b"]
    assert to_arrow_array(values, D.string(), what="urls").to_pylist() == ["https://example.com/a", None, "b"]
    addresses = [ipaddress.ip_address("127.0.0.1")]
    assert to_arrow_array(addresses, D.string(), what="addresses").to_pylist() == ["127.0.0.1"]
