"""Text: parts of it, the case of identifiers, and characters and digits by number."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.column import call
from penstock.expr.kinds import INT32, INTEGER, STRING, TEXT, Kind
from penstock.expr.signatures import text_kernel
from penstock.functions.tables.table import FunctionTable

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
    if not delim or not count:
        return pc.if_else(pc.is_valid(texts), "", texts)
    if count < 0:
        return pc.utf8_reverse(_before(pc.utf8_reverse(texts), delim[::-1], -count))
    parts = pc.split_pattern(texts, pattern=delim, max_splits=count)
    return pc.binary_join(pc.list_slice(parts, 0, count, return_fixed_size_list=False), delim)


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
_PASCAL = f"array_to_string({_TITLES}, '')"


def _case(name: str, sql: str, result: str) -> object:
    doc = f"Convert an identifier or a phrase to the case of ``{result}``."
    return _define(name, {"expr": TEXT}, STRING, sql, doc, ("fooBar baz",), result)


to_snake_case = _case("to_snake_case", f"replace(lower({_JOINED}), ' ', '_')", "foo_bar_baz")
to_kebab_case = _case("to_kebab_case", f"replace(lower({_JOINED}), ' ', '-')", "foo-bar-baz")
to_upper_snake_case = _case("to_upper_snake_case", f"replace(upper({_JOINED}), ' ', '_')", "FOO_BAR_BAZ")
to_upper_kebab_case = _case("to_upper_kebab_case", f"replace(upper({_JOINED}), ' ', '-')", "FOO-BAR-BAZ")
to_title_case = _case("to_title_case", f"array_to_string({_TITLES}, ' ')", "Foo Bar Baz")
to_upper_camel_case = _case("to_upper_camel_case", _PASCAL, "FooBarBaz")
to_camel_case = _case(
    "to_camel_case", f"lower(string_split({_JOINED}, ' ')[1]) || array_to_string({_TITLES}[2:], '')", "fooBarBaz"
)


_DIGITS = Kind("a string or an integer", lambda dtype: dtype.is_string() or dtype.is_integer())


def _conv(texts: pa.Array, *, from_base: int, to_base: int) -> pa.Array:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if not (2 <= from_base <= 36 and 2 <= abs(to_base) <= 36):
        return pa.nulls(len(texts), pa.string())

    def converted(text: str | None) -> str | None:
        text = (text or "").strip()
        if not text:
            return None
        is_negative = text[0] == "-"
        value = 0
        for character in text[is_negative:].upper():
            digit = digits.find(character)
            if not 0 <= digit < from_base:
                break
            value = value * from_base + digit
        if value >= 2**64 or (is_negative and value > 2**63):
            return None
        if is_negative and to_base > 0:
            value = -value % 2**64
        found = ""
        while value or not found:
            value, digit = divmod(value, abs(to_base))
            found = digits[digit] + found
        return f"-{found}" if is_negative and to_base < 0 and found != "0" else found

    return pa.array([converted(text) for text in texts.cast(pa.string()).to_pylist()], pa.string())


conv = _define(
    "conv", {"expr": _DIGITS, "from_base": int, "to_base": int}, STRING, _conv,
    "Convert digits from one base to another, up to 36; a negative ``to_base`` keeps the sign.",
    ("255", 10, 16), "FF",
)  # fmt: skip
