"""Text: parts of it, the case of identifiers, and characters and digits by number."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.arrays import masked, text_bytes, validity
from penstock.expr.column import call
from penstock.expr.kinds import INT32, INTEGER, STRING, TEXT, Kind
from penstock.expr.signatures import text_kernel
from penstock.functions.table import FunctionTable

_table = FunctionTable(__name__)
_define = _table.kernel

ascii = _define(
    "ascii", {"expr": TEXT}, INT32, "ascii(a)",
    "Return the code of the first character; 0 for empty text.", ("A",), 65,
)  # fmt: skip
chr = _define(
    "chr", {"expr": INTEGER}, STRING, "case when a < 0 then '' else chr((a % 256)::int) end",
    "Return the character of a code modulo 256; empty text for negative codes.", (65,), "A",
)  # fmt: skip
space = _define(
    "space", {"expr": INTEGER}, STRING, "repeat(' ', greatest(a, 0)::bigint)",
    "Return text of this many spaces.", (2,), "  ",
)  # fmt: skip
bin = _define(
    "bin", {"expr": INTEGER}, STRING, "bin(a::bigint)",
    "Return the binary digits of an integer; 64 digits if it is negative.", (5,), "101",
)  # fmt: skip
split_part = _define(
    "split_part", {"expr": TEXT, "delim": TEXT, "part": INTEGER}, STRING,
    "case when c = 0 then error('part 0 does not exist; parts count from 1, or from -1 at the end') "
    "when b != '' then split_part(a, b, c) when c in (1, -1) then a else '' end",
    "Return one part of split text, counted from 1, or from the end if negative; a missing part is empty.",
    ("a,b,c", ",", 2), "b",
)  # fmt: skip


def _before(texts: pa.Array, delim: str, count: int) -> pa.Array:
    if not delim or not count or not len(texts):
        return pc.if_else(pc.is_valid(texts), "", texts)
    if len(delim.encode()) == 1:
        return _before_byte(texts, ord(delim), count)
    if count < 0:
        return pc.utf8_reverse(_before(pc.utf8_reverse(texts), delim[::-1], -count))
    parts = pc.split_pattern(texts, pattern=delim, max_splits=count)
    return pc.binary_join(pc.list_slice(parts, 0, count, return_fixed_size_list=False), delim)


def _before_byte(texts: pa.Array, delim: int, count: int) -> pa.Array:
    flat, starts, ends = text_bytes(texts)
    first = int(starts[0])
    hits = first + np.flatnonzero(flat[first : int(ends.max())] == delim)
    if count > 0:
        chosen = np.searchsorted(hits, starts) + (count - 1)
        ends = np.minimum(ends, np.append(hits, len(flat))[np.minimum(chosen, len(hits))])
    else:
        chosen = np.searchsorted(hits, ends) + count
        starts = np.maximum(starts, np.append(-1, hits)[np.maximum(chosen + 1, 0)] + 1)
    # The wanted ranges and those between them are the texts of one array, without a copy; every second one is taken.
    bounds = np.append(np.stack([starts, ends], axis=1), ends[-1:]).astype(np.int32)
    ranges = pa.StringArray.from_buffers(2 * len(texts), pa.py_buffer(bounds), texts.buffers()[2])
    return ranges.take(masked(np.arange(0, 2 * len(texts), 2), validity(texts)))


text_kernel("substring_index", TEXT, INTEGER, returns=STRING, compute=_before)
substring_index = _table.build(
    "substring_index", {"expr": TEXT, "delim": TEXT, "count": INTEGER},
    lambda *args: call("substring_index", *args),
    "Return the text before ``count`` delimiters; if negative, the text after them, counted from the end.",
    ("www.apache.org", ".", 2), "www.apache",
)  # fmt: skip
translate = _define(
    "translate", {"expr": TEXT, "from_str": TEXT, "to_str": TEXT}, STRING, "translate(a, b, c)",
    "Replace each character of ``from_str`` by the one at its place in ``to_str``, or remove it.",
    ("hello", "el", "ip"), "hippo",
)  # fmt: skip

# The rules of words: ``fooBar`` and ``XMLHttp`` have two each, and so has what other characters separate.
_SEPARATED = (
    r"regexp_replace(regexp_replace(a, '(\p{Ll}\p{N}*)(\p{Lu})', '\1 \2', 'g'), '(\p{Lu})(\p{Lu}\p{Ll})', '\1 \2', 'g')"
)
_JOINED = rf"trim(regexp_replace({_SEPARATED}, '[^\p{{L}}\p{{N}}]+', ' ', 'g'))"
_TITLES = f"list_transform(string_split({_JOINED}, ' '), lambda w: upper(w[1]) || lower(w[2:]))"


_OTHER, _DIGIT, _LOWER, _UPPER = range(4)
_KINDS = np.zeros(128, np.uint8)
_KINDS[48:58], _KINDS[97:123], _KINDS[65:91] = _DIGIT, _LOWER, _UPPER


def _recased(texts: pa.Array, separator: str, case: str) -> pa.Array | None:
    """Return texts in ASCII with their words in another case, all at once; None if there are other texts."""
    flat, starts, ends = text_bytes(texts.fill_null(""))
    data = flat[starts[0] : ends[-1]] if len(texts) else flat
    if not len(data) or data.max() > 127:
        return None
    rows = np.append(starts, ends[-1]) - starts[0]
    kinds = np.append(_KINDS[data], np.uint8(_OTHER))
    begins = np.zeros(len(kinds), bool)
    begins[rows] = True
    letters = np.where((kinds == _DIGIT) & ~begins, 0, np.arange(len(kinds), dtype=np.int32))
    is_word = begins.copy()
    is_word[1:] |= kinds[:-1] == _OTHER
    is_word[1:] |= (kinds[1:] == _UPPER) & (kinds[np.maximum.accumulate(letters)[:-1]] == _LOWER)  # fooBar, foo1Bar
    is_word[1:-1] |= (kinds[:-2] == _UPPER) & (kinds[1:-1] == _UPPER) & (kinds[2:] == _LOWER) & ~begins[2:]  # XMLHttp
    kept = kinds[:-1] != _OTHER
    data, is_letter, is_word = data[kept], kinds[:-1][kept] >= _LOWER, is_word[:-1][kept]
    rows = np.append(0, np.cumsum(kept))[rows]
    follows = np.append(is_word, False)
    follows[rows] = False  # the first word of a row
    follows = follows[:-1]
    is_upper = {"lower": False, "upper": True, "title": is_word, "camel": follows}[case]
    data = np.where(is_letter, np.where(is_upper, data & 0xDF, data | 0x20), data)
    if separator:
        shifts = np.append(0, np.cumsum(follows))
        spread = np.full(len(data) + shifts[-1], ord(separator), np.uint8)
        spread[np.arange(len(data)) + shifts[1:]] = data
        data, rows = spread, rows + shifts[rows]
    offsets = pa.py_buffer(rows.astype(np.int32))
    return pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(data))


def _case(name: str, separator: str, case: str, sql: str, result: str) -> object:
    def kernel(texts: pa.Array) -> pa.Array:
        found = _recased(texts, separator, case)
        if found is None:
            from penstock.relational.scalar import evaluate

            return evaluate(name, sql, [texts])
        return pc.if_else(pc.is_valid(texts), found, None) if texts.null_count else found

    doc = f"Convert an identifier or a phrase to the case of ``{result}``."
    return _define(name, {"expr": TEXT}, STRING, kernel, doc, ("fooBar baz",), result)


_CAMEL = f"lower(string_split({_JOINED}, ' ')[1]) || array_to_string({_TITLES}[2:], '')"
to_snake_case = _case("to_snake_case", "_", "lower", f"replace(lower({_JOINED}), ' ', '_')", "foo_bar_baz")
to_kebab_case = _case("to_kebab_case", "-", "lower", f"replace(lower({_JOINED}), ' ', '-')", "foo-bar-baz")
to_upper_snake_case = _case("to_upper_snake_case", "_", "upper", f"replace(upper({_JOINED}), ' ', '_')", "FOO_BAR_BAZ")
to_upper_kebab_case = _case("to_upper_kebab_case", "-", "upper", f"replace(upper({_JOINED}), ' ', '-')", "FOO-BAR-BAZ")
to_title_case = _case("to_title_case", " ", "title", f"array_to_string({_TITLES}, ' ')", "Foo Bar Baz")
to_upper_camel_case = _case("to_upper_camel_case", "", "title", f"array_to_string({_TITLES}, '')", "FooBarBaz")
to_camel_case = _case("to_camel_case", "", "camel", _CAMEL, "fooBarBaz")


_DIGITS = Kind("a string or an integer", lambda dtype: dtype.is_string() or dtype.is_integer())


_DIGITS_OF = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FORMATS = {2: "b", 8: "o", 10: "d", 16: "X"}


def _conv(texts: pa.Array, *, from_base: int, to_base: int) -> pa.Array:
    """Convert each different number once."""
    if not (2 <= from_base <= 36 and 2 <= abs(to_base) <= 36):
        return pa.nulls(len(texts), pa.string())
    number = re.compile(rf"\s*(-?)([{_DIGITS_OF[:from_base]}]*)", re.IGNORECASE | re.ASCII)

    def converted(text: str) -> str | None:
        if not text or text.isspace():
            return None
        sign, digits = number.match(text).groups()  # type: ignore[union-attr]
        value = int(digits or "0", from_base)
        if value >= 2**64 or (sign and value > 2**63):
            return None
        if sign and to_base > 0:
            value, sign = -value % 2**64, ""
        return sign * bool(value) + _written(value, abs(to_base))

    encoded = texts.cast(pa.string()).dictionary_encode()
    return pa.array(map(converted, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _written(value: int, base: int) -> str:
    if base in _FORMATS:
        return format(value, _FORMATS[base])
    found = ""
    while value or not found:
        value, digit = divmod(value, base)
        found = _DIGITS_OF[digit] + found
    return found


conv = _define(
    "conv", {"expr": _DIGITS, "from_base": int, "to_base": int}, STRING, _conv,
    "Convert digits from one base to another, up to 36; a negative ``to_base`` keeps the sign.",
    ("255", 10, 16), "FF",
)  # fmt: skip
