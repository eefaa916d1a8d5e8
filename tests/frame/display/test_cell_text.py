"""Each kind of value as text, and values made to do harm."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import json
import os
import pickle
import time
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock.frame.display import render_text
from penstock.frame.display.cells import cell_text
from penstock.types import EmbeddingType, FileType, ImageType, PythonType, Schema, TensorType

FAMILY = "👨‍👩‍👧"


def stored(kind: pa.ExtensionType, value: Any) -> pa.Scalar:
    return pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.scalar(None), "None"),
        (pa.scalar(None, pa.string()), "None"),
        (pa.scalar(True), "true"),
        (pa.scalar(-5), "-5"),
        (pa.scalar(2**64 - 1, pa.uint64()), "18446744073709551615"),
        (pa.scalar(0.1), "0.1"),
        (pa.scalar(0.1, pa.float32()), "0.1"),
        (pa.scalar(0.5, pa.float16()), "0.5"),
        (pa.scalar(float("nan")), "nan"),
        (pa.scalar(decimal.Decimal("1.50")), "1.50"),
        (pa.scalar(dt.date(2024, 2, 29)), "2024-02-29"),
        (pa.scalar(dt.time(1, 2, 3)), "01:02:03"),
        (pa.scalar(dt.datetime(2024, 1, 1)), "2024-01-01 00:00:00"),
        (pa.scalar(1_700_000_000_123_456_789, pa.timestamp("ns")), "2023-11-14 22:13:20.123456789"),
        (pa.scalar(0, pa.timestamp("us", "UTC")), "1970-01-01 00:00:00Z"),
        (pa.scalar(0, pa.timestamp("us", "Nowhere/Land")), "1970-01-01 00:00:00Z"),
        (pa.scalar(2**62, pa.timestamp("s")), "<value out of range: 4611686018427387904>"),
        (pa.scalar(dt.timedelta(days=1, seconds=1)), "1 day, 0:00:01"),
        (pa.scalar(1, pa.duration("ns")), "1 ns"),
        (pa.scalar(2**62, pa.duration("s")), "4611686018427387904 s"),
        (pa.scalar(b"\x89PNG \"q\" 's'"), 'b"\\x89PNG \\"q\\" \'s\'"'),
        (pa.scalar("large", pa.large_string()), "large"),
        (pa.scalar("view", pa.string_view()), "view"),
        (pa.array(["dict"]).dictionary_encode()[0], "dict"),
        (pa.scalar([1, None, 3]), "[1, null, 3]"),
        (pa.scalar(["a", 'say "hi"\n']), '["a", "say \\"hi\\"\\n"]'),
        (pa.scalar({"a": 1, "b": {"c": [True]}, "d": None}), '{"a": 1, "b": {"c": [true]}, "d": null}'),
        (pa.scalar([("k", 1)], pa.map_(pa.string(), pa.int64())), '{"k": 1}'),
        (pa.scalar({"at": dt.date(2024, 1, 1)}), '{"at": "2024-01-01"}'),
        (stored(EmbeddingType(pa.float32(), 3), [1, 2, 3]), "<embedding 3 x float32>"),
        (stored(TensorType(pa.int8(), (2, 3)), [1] * 6), "<tensor 2x3 int8>"),
        (stored(TensorType(pa.int8()), {"data": [1, 2], "shape": [1, 2]}), "<tensor 1x2 int8>"),
        (stored(ImageType("RGB", 480, 640), [0] * 480 * 640 * 3), "<image RGB 640x480>"),
        (stored(ImageType(), {"data": b"12", "height": 1, "width": 2, "channels": 1}), "<image L 2x1>"),
        (stored(ImageType(), None), "None"),
        (stored(FileType(), {"path": "s3://b/k", "data": None}), "s3://b/k"),
        (stored(FileType(), {"path": None, "data": b"x" * 1500}), "<file 1.5 kB>"),
        (stored(PythonType(), pickle.dumps({"a": (1, 2)})), "{'a': (1, 2)}"),
    ],
)
def test_each_kind_of_value(value: pa.Scalar, text: str) -> None:
    assert cell_text(value, 100) == text


def test_extension_values_inside_lists() -> None:
    kind = EmbeddingType(pa.float32(), 2)
    vectors = pa.ExtensionArray.from_storage(kind, pa.array([[1, 2], None], kind.storage_type))
    rows = pa.ListArray.from_arrays([0, 2], vectors)
    assert cell_text(rows[0], 100) == "[<embedding 2 x float32>, null]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\x07\x08\x00b\x7f", "a\\x07\\x08\\x00b\\x7f"),
        ("one\r\ntwo\nthree\rfour\u2028five", "one⏎two⏎three⏎four⏎five"),
        ("tab\there", "tab here"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        (FAMILY, FAMILY),
    ],
)
def test_nothing_in_the_data_commands_the_terminal(text: str, shown: str) -> None:
    assert cell_text(pa.scalar(text), 100) == shown


def test_hostile_names_types_and_nested_values_are_neutralised() -> None:
    evil = "\x1b]0;owned\x07\x9b2J\u202e"
    kind = PythonType()
    pickled = pickle.dumps(collections.OrderedDict()).replace(b"collections", b"col\x1b[2Jtions")
    table = pa.table(
        {
            evil: [evil],
            "list": [[evil]],
            "struct": [{evil: evil}],
            "map": pa.array([[(evil, evil)]], pa.map_(pa.string(), pa.string())),
            "bytes": [evil.encode()],
            "python": pa.ExtensionArray.from_storage(kind, pa.array([pickled], kind.storage_type)),
        }
    )
    for style in ("default", "markdown", "plain"):
        text = render_text(table, Schema.from_arrow(table.schema), format=style)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)


def test_markdown_cells_hold_no_markup() -> None:
    table = pa.table({"a|b": ["<img src=x>", "![x](http://tracker)", "a|b\\"]})
    text = render_text(table, Schema.from_arrow(table.schema), format="markdown")
    assert "\\<img" in text
    assert "](" not in text
    assert "a\\|b\\\\" in text


def test_invalid_utf8_is_shown() -> None:
    data = pa.py_buffer(b"ok\xff!")
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\4\0\0\0"), data)
    assert cell_text(broken[0], 10) == "ok\ufffd!"


def test_a_cut_never_divides_a_character() -> None:
    for length in range(1, 40):
        assert "\ufffd" not in cell_text(pa.scalar("漢é" * 400), length)


def test_only_what_is_shown_is_read() -> None:
    huge = pa.table(
        {
            "text": ["x" * 200_000_000],
            "bytes": [b"x" * 200_000_000],
            "list": pa.ListArray.from_arrays([0, 20_000_000], pa.nulls(20_000_000, pa.int64())),
            "marks": ["e" + "\u0301" * 10_000_000],
        }
    )
    before = time.process_time()
    text = render_text(huge, Schema.from_arrow(huge.schema))
    assert time.process_time() - before < 0.5
    assert len(text) < 5_000
    assert text.splitlines()[4].count("…") == 4


def test_looking_at_pickles_runs_nothing(tmp_path: Any) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "owned"),)

    assert cell_text(stored(PythonType(), pickle.dumps(Bomb())), 100).startswith("<python posix.mkdir, ")
    assert not (tmp_path / "owned").exists()


def test_pickles_are_named_by_their_class() -> None:
    text = cell_text(stored(PythonType(), pickle.dumps(collections.OrderedDict(a=1))), 100)
    assert text.startswith("<python collections.OrderedDict, ")
    local = type("Local", (), {})
    assert cell_text(stored(PythonType(), cloudpickle.dumps(local())), 100).startswith("<python ")
    assert cell_text(stored(PythonType(), b"not a pickle"), 100) == "<python 12 B>"


def test_a_pickle_that_unfolds_without_end_is_cut() -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    assert len(cell_text(stored(PythonType(), pickle.dumps(laughs)), 30)) < 10_000


def test_nested_text_is_json() -> None:
    value = {"a": [1, 2, None], "b": {"c": True, "d": 'x\ty "z"'}, "e": [{"f": 0.5}]}
    assert json.loads(cell_text(pa.scalar(value), 100)) == value
