"""``return_format``: its kinds, the schemas made from them, and the parsing of answers."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import subprocess
import sys
import typing
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pydantic import AnyUrl, AwareDatetime, BaseModel, ConfigDict, Field, field_serializer, field_validator

import penstock as ps
from penstock.ai.structured.return_formats import OutputFormat
from penstock.errors import InvalidAnswerError, InvalidArgumentError, TypeMismatchError
from penstock.testing import ModelServer
from penstock.types import DataType, to_arrow_array


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Part(BaseModel):
    name: str
    grams: float | None = None


class Review(BaseModel):
    """What a customer says."""

    title: str = Field(description="A headline.", min_length=1)
    mood: Mood
    stars: int = Field(3, ge=1, le=5)
    tags: list[str] = []
    parts: dict[str, Part] = {}
    language: Literal["de", "en"] | None = None


class Moment(BaseModel):
    at: datetime.datetime
    aware: AwareDatetime
    day: datetime.date
    clock: datetime.time
    lasted: datetime.timedelta
    id: uuid.UUID
    price: decimal.Decimal
    level: Level
    url: AnyUrl
    address: ipaddress.IPv4Address


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Sized(BaseModel):
    size: int


class Named(BaseModel):
    size: str


class Thing(BaseModel):
    either: Sized | Named
    both: int | str


class Row(typing.TypedDict, total=False):
    text: typing.Required[str]
    score: float


class Rows(typing.TypedDict):
    rows: list[Row]
    best: Row | None


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass(slots=True)
class SlottedPoint:
    x: int


class Pair(NamedTuple):
    left: str
    right: int


def in_column(output: OutputFormat, *values: Any) -> list[Any]:
    """Return values after a trip through a column of the format's type."""
    return to_arrow_array(list(values), output.dtype, what="answers").to_pylist()


def struct(**fields: DataType) -> DataType:
    return DataType.struct(fields)


TEXT, INT, FLOAT, BOOL = DataType.string(), DataType.int64(), DataType.float64(), DataType.bool()


# --- what a format may be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("return_format", "dtype", "answer", "value"),
    [
        (Part, struct(name=TEXT, grams=FLOAT), '{"name": "a"}', {"name": "a", "grams": None}),
        (Point, struct(x=INT, y=INT), '{"x": 1}', {"x": 1, "y": 0}),
        (SlottedPoint, struct(x=INT), '{"x": 1}', {"x": 1}),
        (Row, struct(text=TEXT, score=FLOAT), '{"text": "a"}', {"text": "a", "score": None}),
        (
            Rows,
            struct(rows=DataType.list(struct(text=TEXT, score=FLOAT)), best=struct(text=TEXT, score=FLOAT)),
            '{"rows": [{"text": "a"}], "best": null}',
            {"rows": [{"text": "a", "score": None}], "best": None},
        ),
        (list[Row], DataType.list(struct(text=TEXT, score=FLOAT)), "[]", []),
        (Pair, struct(left=TEXT, right=INT), '{"value": ["a", 1]}', {"left": "a", "right": 1}),
        (str, TEXT, '{"value": "a"}', "a"),
        (int, INT, '{"value": 7}', 7),
        (bool, BOOL, '{"value": true}', True),
        (list[str], DataType.list(TEXT), '{"value": ["a"]}', ["a"]),
        (set[int], DataType.list(INT), '{"value": [1]}', [1]),
        (tuple[int, str], DataType.struct({"0": INT, "1": TEXT}), '{"value": [1, "a"]}', {"0": 1, "1": "a"}),
        (int | None, INT, '{"value": null}', None),
        (Literal["a", "b"], TEXT, '{"value": "b"}', "b"),
        (Mood, TEXT, '{"value": "good"}', "good"),
        (Level, INT, '{"value": 2}', 2),
        (Owner, None, '{"pet": {"kind": "dog", "tricks": ["sit"]}}',
         {"pet": {"kind": "dog", "lives": None, "tricks": ["sit"]}}),
        (DataType.list(DataType.int8()), DataType.list(DataType.int8()), '{"value": [1]}', [1]),
        (pa.list_(pa.string()), DataType.list(TEXT), '{"value": ["a"]}', ["a"]),
        (
            struct(n=DataType.decimal128(5, 2), at=DataType.timestamp()),
            struct(n=DataType.decimal128(5, 2), at=DataType.timestamp()),
            '{"n": 1.25, "at": "2024-05-06T07:08:09Z"}',
            {"n": decimal.Decimal("1.25"), "at": datetime.datetime(2024, 5, 6, 7, 8, 9)},
        ),
    ],
)  # fmt: skip
def test_formats(return_format: Any, dtype: DataType | None, answer: str, value: Any) -> None:
    output = OutputFormat.of(return_format)
    assert dtype is None or output.dtype == dtype
    assert in_column(output, output.parse(answer), None) == [value, None]
    assert output.schema["type"] == "object"


OBJECT = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "state": {"enum": ["open", "done"]},
        "total": {"type": ["number", "null"]},
        "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 2},
        "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["id", "state", "lines"],
    "$defs": {"line": {"type": "object", "properties": {"sku": {"const": "x"}}, "required": ["sku"]}},
}


def test_json_schema() -> None:
    output = OutputFormat.of(OBJECT)
    assert output.name == "Order"
    assert output.dtype == struct(
        id=INT,
        state=TEXT,
        total=FLOAT,
        note=TEXT,
        at=DataType.timestamp("us", "UTC"),
        lines=DataType.list(struct(sku=TEXT)),
        extra=DataType.map(TEXT, BOOL),
    )
    answer = {"id": 1, "state": "open", "total": 2, "at": "2024-01-01T02:00:00+02:00", "lines": [{"sku": "x"}]}
    value = output.parse(json.dumps({**answer, "extra": {"a": True}, "unasked": 1}))
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    assert in_column(output, value) == [{**answer, "note": None, "extra": [("a", True)], "at": at}]


@pytest.mark.parametrize(
    ("schema", "dtype", "answer", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}}, DataType.list(INT), "[1, 2]", [1, 2]),
        ({"properties": {"a": {"type": "string"}}}, struct(a=TEXT), '{"a": "x"}', {"a": "x"}),
        ({"type": "string", "format": "uuid"}, TEXT, "12345678123456781234567812345678",
         "12345678-1234-5678-1234-567812345678"),
        ({"enum": ["a", "b"]}, TEXT, '{"value": "a"}', "a"),
        ({"type": "string", "nullable": True}, TEXT, '{"value": null}', None),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}}, FLOAT, '{"value": 1}', 1.0),
        ({"$ref": "#/$defs/o", "$defs": {"o": {"type": "object", "properties": {"a": {"type": "string"}}}}},
         struct(a=TEXT), '{"a": "x"}', {"a": "x"}),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, FLOAT, '{"value": 1.5}', 1.5),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, DataType.python(), '{"value": "5"}', "5"),
        ({}, DataType.python(), '{"value": {"a": [1]}}', {"a": [1]}),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}}, BOOL, "true", True),
    ],
)  # fmt: skip
def test_other_json_schemas(schema: dict[str, Any], dtype: DataType, answer: str, value: Any) -> None:
    output = OutputFormat.of(schema)
    assert output.dtype == dtype
    assert in_column(output, output.parse(answer)) == [value]


def test_a_json_schema_that_contains_itself() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    }
    output = OutputFormat.of(tree)
    assert output.dtype == struct(name=TEXT, kids=DataType.list(DataType.python()))
    value = {"name": "a", "kids": [{"name": "b", "kids": [{"name": "c"}]}]}
    assert output.parse(json.dumps(value)) == value
    assert in_column(output, value) == [value]
    with pytest.raises(InvalidAnswerError, match=r"kids\[0\]\.name: field required"):
        output.parse('{"name": "a", "kids": [{}]}')


def test_a_model_that_contains_itself_holds_python_objects() -> None:
    output = OutputFormat.of(Node)
    assert output.dtype == struct(name=TEXT, children=DataType.list(DataType.python()))
    value = output.parse('{"name": "a", "children": [{"name": "b"}]}')
    assert value == {"name": "a", "children": [{"name": "b", "children": []}]}
    assert in_column(output, value) == [value]


def test_a_union_without_a_common_type_is_a_python_object() -> None:
    output = OutputFormat.of(Thing)
    assert output.dtype == struct(either=DataType.python(), both=DataType.python())
    value = {"either": {"size": "big"}, "both": 3}
    assert output.parse(json.dumps(value)) == value
    assert in_column(output, value) == [value]


def test_values_are_in_the_form_of_the_column() -> None:
    output = OutputFormat.of(Moment)
    answer = {
        "at": "2024-01-01T02:00:00+02:00",
        "aware": "2024-01-01T02:00:00+02:00",
        "day": "2024-02-03",
        "clock": "04:05:06",
        "lasted": "PT90S",
        "id": "12345678-1234-5678-1234-567812345678",
        "price": "1.50",
        "level": 2,
        "url": "https://example.com/",
        "address": "127.0.0.1",
    }
    (value,) = in_column(output, output.parse(json.dumps(answer)))
    assert value == {
        "at": datetime.datetime(2024, 1, 1),
        "aware": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "day": datetime.date(2024, 2, 3),
        "clock": datetime.time(4, 5, 6),
        "lasted": datetime.timedelta(seconds=90),
        "id": answer["id"],
        "price": decimal.Decimal("1.5"),
        "level": 2,
        "url": answer["url"],
        "address": answer["address"],
    }


def test_models_are_read_by_their_rules() -> None:
    class Strange(BaseModel):
        model_config = ConfigDict(serialize_by_alias=True)
        size: int = Field(alias="How big?")
        text: str

        @field_validator("text")
        @classmethod
        def shout(cls, text: str) -> str:
            if text == "no":
                raise ValueError("say yes")
            return text.upper()

        @field_serializer("text")
        def hide(self, text: str) -> int:
            return 0

    output = OutputFormat.of(Strange)
    assert output.dtype == struct(size=INT, text=TEXT)
    assert list(output.schema["properties"]) == ["How big?", "text"]
    assert output.parse('{"How big?": 1, "text": "a"}') == {"size": 1, "text": "A"}
    with pytest.raises(InvalidAnswerError, match="say yes"):
        output.parse('{"How big?": 1, "text": "no"}')


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_the_schema_shown_to_a_model() -> None:
    output = OutputFormat.of(Review)
    assert output.name == "Review"
    assert output.schema["description"] == "What a customer says."
    assert output.schema["properties"]["title"] == {"description": "A headline.", "minLength": 1, "type": "string"}
    assert output.schema["required"] == ["title", "mood"]


def test_strict_schema() -> None:
    class Order(BaseModel):
        item: Part = Field(description="What is bought.")
        other: Part
        mood: Mood = Mood.GOOD
        count: int = Field(1, ge=1)
        when: datetime.date | None = None
        code: str = Field(pattern="^a", max_length=3)
        site: AnyUrl
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    strict = OutputFormat.of(Order).strict_schema()
    assert strict is not None
    part = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "grams": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        "required": ["name", "grams"],
        "additionalProperties": False,
    }
    assert strict["required"] == list(Order.model_fields)
    assert strict["$defs"]["Part"] == part
    assert strict["properties"] == {
        "item": {"description": "What is bought.", "anyOf": [{"$ref": "#/$defs/Part"}]},
        "other": {"$ref": "#/$defs/Part"},
        "mood": {"anyOf": [{"$ref": "#/$defs/Mood"}, {"type": "null"}]},
        "count": {"type": ["integer", "null"], "minimum": 1},
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "code": {"type": "string", "pattern": "^a"},
        "site": {"type": "string"},
        "pet": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
    }


ALLOWED = {
    *("type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items", "$ref", "$defs"),
    *("description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems"),
}


def assert_strict(schema: dict[str, Any]) -> None:
    """Check the rules of strict mode, whatever the schema is."""
    assert schema.keys() <= ALLOWED
    assert schema.keys() & {"type", "anyOf", "$ref"}
    assert "$ref" not in schema or schema.keys() == {"$ref"}
    if "properties" in schema:
        assert schema["required"] == list(schema["properties"])
        assert schema["additionalProperties"] is False
    parts = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        assert_strict(part)


@pytest.mark.parametrize(
    "return_format",
    [Part, Owner, Node, Point, Row, Rows, list[Part], Mood, Literal["a", 1], Moment, int | None, OutputFormat.of(str),
     {"enum": ["a", None]}, struct(a=DataType.list(FLOAT))],
)  # fmt: skip
def test_strict_schemas_keep_the_rules(return_format: Any) -> None:
    strict = OutputFormat.of(return_format).strict_schema()
    assert strict is not None
    assert strict["type"] == "object"
    assert_strict(strict)


@pytest.mark.parametrize("return_format", [Review, dict[str, int], Any, OBJECT, list[dict], Pair, tuple[int, str]])
def test_what_strict_mode_cannot_say(return_format: Any) -> None:
    assert OutputFormat.of(return_format).strict_schema() is None


def test_null_leaves_out_a_field_with_a_default() -> None:
    output = OutputFormat.of(Review)
    value = output.parse('{"title": "a", "mood": "bad", "stars": null, "tags": null, "parts": null, "language": null}')
    assert value == {"title": "a", "mood": "bad", "stars": 3, "tags": [], "parts": {}, "language": None}
    for wrong in ('"title": null, "mood": "bad"', '"title": "a", "mood": "bad", "tags": [null]'):
        with pytest.raises(InvalidAnswerError, match=r"(title|tags\[0\]): input should be a valid string \(got None\)"):
            output.parse(f"{{{wrong}}}")


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a"}',
        ' \n{"name": "a"}\n',
        '```json\n{"name": "a"}\n```',
        'Here you are:\n```\n{"name": "a"}\n```\nGood?',
        'I put it in {braces}: {"name": "a"} as asked.',
        '{"name": "a"} I hope this helps.',
        '<think>{"name": "b"}?</think>\n{"name": "a"}',
        '{"name": "a"} Again: {"name": "a"}',
        'Draft. {"name": "a"} And once more: {"name": "a"}',
        '{"name": "a", "colour": "red"}',
    ],
)
def test_json_is_found(text: str) -> None:
    assert OutputFormat.of(Part).parse(text) == {"name": "a", "grams": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not one JSON object: EOF"),
        ("I cannot say.", "not one JSON object"),
        ('{"name": "a", "grams": ', "not one JSON object: EOF"),
        ('Take {"name": "a"} or {"name": "b"}', "not one JSON object"),
        ('Well: {"parts": [{"name": "a"}', "not one JSON object"),
        ("{}", "name: field required"),
        ('"a"', "should be"),
        ('{"name": 1}', r"name: input should be a valid string \(got 1\)"),
        ('Here: {"name": 1}', r"name: input should be a valid string \(got 1\)"),
        ('{"name": "a", "grams": "' + "x" * 500 + '"}', r"grams: .*valid number.* \(got \"x{50,59}\.\.\.\)"),
    ],
)
def test_wrong_answers(text: str, message: str) -> None:
    with pytest.raises(InvalidAnswerError, match=message):
        OutputFormat.of(Part).parse(text)


def test_what_is_allowed_is_told() -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        OutputFormat.of(Review).parse('{"title": "", "mood": "so-so", "stars": 9, "parts": {"a": {"grams": 1}}}')
    assert str(caught.value) == (
        "The answer does not match the schema: "
        'title: string should have at least 1 character (got ""); '
        "mood: input should be 'good' or 'bad' (got \"so-so\"); "
        "stars: input should be less than or equal to 5 (got 9); "
        "parts.a.name: field required."
    )


def test_many_problems_are_told_in_short() -> None:
    with pytest.raises(InvalidAnswerError, match=r"\[4\].*; and 95 more\.$"):
        OutputFormat.of(list[int]).parse(json.dumps({"value": ["x"] * 100}))


@pytest.mark.parametrize("text", ["good", " good\n", '"good"', '{"value": "good"}', '```json\n"good"\n```'])
def test_a_lone_word_needs_no_object(text: str) -> None:
    assert OutputFormat.of(Mood).parse(text) == "good"


@pytest.mark.parametrize("text", ["It is 5 {units}.", 'Say {"a": 1} there.', "123", "true", "<think>Hm.</think>\nYes."])
def test_text_needs_no_object(text: str) -> None:
    assert OutputFormat.of(str).parse(text) == text.removeprefix("<think>Hm.</think>\n")


def test_a_bare_value_is_told_what_is_wrong_with_it() -> None:
    with pytest.raises(InvalidAnswerError, match=r"value: input should be 'good' or 'bad' \(got \"fine\"\)"):
        OutputFormat.of(Mood).parse("fine")
    with pytest.raises(InvalidAnswerError, match=r"value\[1\]: input should be a valid integer"):
        OutputFormat.of(list[int]).parse('[1, "x"]')


@pytest.mark.parametrize("text", ["fine", '{"value": "fine"}', '{"value": "go', '"goo', "", "null"])
def test_a_wrong_word_is_refused(text: str) -> None:
    with pytest.raises(InvalidAnswerError):
        OutputFormat.of(Mood).parse(text)


@pytest.mark.parametrize(
    ("dtype", "answer", "message"),
    [
        (struct(a=DataType.int8()), {"a": 200}, "a: input should be less than or equal to 127"),
        (DataType.fixed_size_list(FLOAT, 2), {"value": [1]}, "value: list should have at least 2 items"),
    ],
)
def test_what_a_type_cannot_hold_is_asked_again(dtype: DataType, answer: Any, message: str) -> None:
    with pytest.raises(InvalidAnswerError, match=message):
        OutputFormat.of(dtype).parse(json.dumps(answer))


@pytest.mark.parametrize(
    ("dtype", "answer"),
    [
        (struct(a=DataType.list(struct(b=INT))), {"a": [{"b": 2**70}]}),
        (struct(a=DataType.uint64()), {"a": 2**64}),
        (struct(a=DataType.decimal128(4, 2)), {"a": 100}),
        (struct(a=DataType.decimal128(4, 2)), {"a": 0.125}),
        (struct(a=DataType.timestamp("ns")), {"a": "9999-01-01T00:00:00Z"}),
        (struct(a=DataType.duration("ns")), {"a": "P999999D"}),
    ],
)
def test_what_does_not_fit_the_column_is_refused(dtype: DataType, answer: Any) -> None:
    output = OutputFormat.of(dtype)
    with pytest.raises(TypeMismatchError):
        in_column(output, output.parse(json.dumps(answer)))


def test_what_does_not_fit_the_column_fails_its_own_row(model_server: ModelServer) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="none")
    model_server.change(answer=lambda request: json.dumps({"a": 2**64 if request.text == "odd" else 1}))
    answers = ps.prompt(ps.col("q"), struct(a=DataType.uint64()), on_error="null")
    found = ps.from_pydict({"q": ["fine", "odd", "good"]}).select(a=answers).collect()
    assert found.to_pydict()["a"] == [{"a": 1}, None, {"a": 1}]
    assert "expected struct" in found.errors().to_pydict()["message"][0]


# --- what is refused when the plan is built ---------------------------------------------------------------------------


class Opaque:
    pass


class Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str
    inner: list[Opaque]


class Outer(BaseModel):
    holder: Holder


class Empty(BaseModel):
    pass


@pytest.mark.parametrize(
    ("return_format", "message"),
    [
        (Holder, r"return_format: Holder has no JSON schema .*Opaque"),
        (Outer, r"return_format: Outer has no JSON schema .*Opaque"),
        (Opaque, "return_format: Opaque has no JSON schema"),
        (Empty, "return_format has no fields"),
        ({"type": "object", "properties": {}}, "return_format has no fields"),
        (DataType.struct({}), "return_format has no fields"),
        (3, "return_format takes a pydantic model, .*; got 3"),
        ("json", "return_format takes a pydantic model, .*; got 'json'"),
        (Part(name="a"), "return_format takes a pydantic model, .*; got Part"),
        ({"name": str}, "not a JSON schema"),
        ({"name": "string"}, "a dict must be a JSON schema"),
        ({"type": "text"}, "return_format: 'text' is not a JSON type; the types are: object"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, r"return_format\.a: the keyword 'not'"),
        ({"type": "object", "properties": {"a": 5}}, r"return_format\.a: expected a JSON schema"),
        ({"type": "object", "properties": {"name": {}}, "required": ["nam"]}, "names 'nam'.*Did you mean 'name'"),
        ({"$ref": "#/$defs/x", "$defs": {"y": {}}}, r"has no target in the schema; \$defs has: y"),
        ({"type": "array", "items": {"$ref": "#"}}, "put its target under"),
        ({"$ref": "https://example.com/x"}, "points outside the schema"),
        ({"type": "string", "pattern": "("}, "return_format: the JSON schema cannot be validated"),
        ({"enum": []}, "'enum' must be a list of values, got \\[\\]"),
        ({"enum": [{"a": 1}]}, "an enum lists"),
        (
            {"type": "object", "properties": {"a": {"anyOf": "x"}}},
            r"return_format\.a: 'anyOf' must be a list of schemas",
        ),
        ({"type": "object", "properties": ["a"]}, "'properties' must be a dict of schemas"),
        ({"type": 5}, "'type' must be the name of a type"),
        ({"type": "object", "properties": {"a": {}}, "required": "a"}, "'required' must be a list of names"),
        ({"allOf": [{}, {}]}, "'allOf' of several schemas"),
        (struct(a=DataType.image()), r"return_format\.a: image has no JSON schema"),
        (DataType.list(DataType.binary()), r"return_format\[\]: binary has no JSON schema"),
    ],
)
def test_refused(return_format: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        OutputFormat.of(return_format)


# --- travelling and comparing -----------------------------------------------------------------------------------------


def test_classes_of_a_function_travel() -> None:
    class Colour(enum.Enum):
        RED = "red"

    class Inner(BaseModel):
        colour: Colour

    class Local(BaseModel):
        inner: list[Inner]

    @dataclasses.dataclass
    class Data:
        needed: int
        many: list[int] = dataclasses.field(default_factory=list)

    output = OutputFormat.of(Local)
    output.parse('{"inner": []}')
    arrived = cloudpickle.loads(cloudpickle.dumps(output))
    assert arrived.dtype == output.dtype
    assert arrived.parse('{"inner": [{"colour": "red"}]}') == {"inner": [{"colour": "red"}]}
    for other in (Colour, list[Local], Row, Point, Data, OBJECT):
        copy = cloudpickle.loads(cloudpickle.dumps(OutputFormat.of(other)))
        assert copy.schema == OutputFormat.of(other).schema
        with pytest.raises(InvalidAnswerError):
            copy.parse("{}")


def test_classes_of_a_module_that_travels_by_value() -> None:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        for _ in range(2):  # loading must not change the class itself
            copy = cloudpickle.loads(cloudpickle.dumps(OutputFormat.of(Point)))
            assert copy.parse('{"x": 1}') == OutputFormat.of(Point).parse('{"x": 1}')
    finally:
        cloudpickle.unregister_pickle_by_value(module)


SCRIPT = """
from __future__ import annotations
import dataclasses, enum, sys, typing, cloudpickle
from pydantic import BaseModel
from penstock.ai.structured.return_formats import OutputFormat

class Colour(enum.Enum):
    RED = "red"

class Model(BaseModel):
    colour: Colour

class Dict(typing.TypedDict):
    colour: Colour
    other: typing.NotRequired[Model]

@dataclasses.dataclass
class Tree:
    n: int
    kids: list[Tree] = dataclasses.field(default_factory=list)

@dataclasses.dataclass
class Data:
    colour: Colour
    many: list[Dict] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if self.many:
            raise ValueError("too many")

formats = [OutputFormat.of(hint) for hint in (Model, Dict, Data, list[Data], Colour, Tree)]
sys.stdout.buffer.write(cloudpickle.dumps(formats))
"""


def test_classes_of_a_script_travel() -> None:
    written = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True).stdout
    model, typed_dict, data, many, colour, tree = cloudpickle.loads(written)
    red = '{"colour": "red"}'
    assert model.parse(red) == {"colour": "red"}
    assert typed_dict.parse(red) == {"colour": "red"}
    assert data.parse(red) == {"colour": "red", "many": []}
    assert many.parse(f"[{red}]") == [{"colour": "red", "many": []}]
    assert colour.parse("red") == "red"
    assert tree.parse('{"n": 1, "kids": [{"n": 2}]}') == {"n": 1, "kids": [{"n": 2}]}
    with pytest.raises(InvalidAnswerError, match="too many"):
        data.parse(f'{{"colour": "red", "many": [{red}]}}')
    with pytest.raises(InvalidAnswerError, match="'red'"):
        typed_dict.parse('{"colour": "blue"}')


@pytest.mark.parametrize("return_format", [Part, list[Part], Rows, Literal["a"], OBJECT, DataType.list(TEXT)])
def test_equal_formats(return_format: Any) -> None:
    one, other = OutputFormat.of(return_format), OutputFormat.of(return_format)
    with pytest.raises(InvalidAnswerError):
        one.parse("{}")  # what it builds to read answers does not count
    assert one == other
    assert hash(one) == hash(other)
    assert one != OutputFormat.of(int)


def test_classes_that_check_differently_are_not_equal() -> None:
    def make(limit: int) -> Any:
        class Same(BaseModel):
            n: int

            @field_validator("n")
            @classmethod
            def small(cls, n: int) -> int:
                assert n < limit
                return n

        return Same

    assert OutputFormat.of(make(1)) != OutputFormat.of(make(2))


# --- round trips ------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
parts = st.builds(Part, name=texts, grams=st.none() | st.floats(allow_nan=False, allow_infinity=False))
reviews = st.builds(
    Review,
    title=texts.filter(bool),
    mood=st.sampled_from(Mood),
    stars=st.integers(1, 5),
    tags=st.lists(texts, max_size=3),
    parts=st.dictionaries(texts, parts, max_size=2),
    language=st.sampled_from(["de", "en", None]),
)


@given(st.lists(reviews, max_size=4))
def test_models_round_trip(values: list[Review]) -> None:
    output = OutputFormat.of(Review)
    rows = [output.parse(value.model_dump_json()) for value in values]
    assert rows == [value.model_dump() | {"mood": value.mood.value} for value in values]
    assert [{**row, "parts": dict(row["parts"])} for row in in_column(output, *rows)] == rows


scalars = st.sampled_from([
    (TEXT, texts),
    (INT, st.integers(-(2**63), 2**63 - 1)),
    (DataType.uint8(), st.integers(0, 255)),
    (FLOAT, st.floats(allow_nan=False, allow_infinity=False)),
    (BOOL, st.booleans()),
    (DataType.date(), st.dates()),
    (DataType.timestamp(), st.datetimes()),
    (DataType.time(), st.times()),
])  # fmt: skip


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = children.map(lambda pair: (DataType.list(pair[0]), st.lists(pair[1], max_size=3)))
    names = st.sampled_from(["a", "first name", "model_x"])
    structs = st.dictionaries(names, children, min_size=1, max_size=3).map(
        lambda fields: (
            DataType.struct({name: pair[0] for name, pair in fields.items()}),
            st.fixed_dictionaries({name: pair[1] for name, pair in fields.items()}),
        )
    )
    return lists | structs


@given(st.data())
def test_types_round_trip(data: st.DataObject) -> None:
    dtype, strategy = data.draw(st.recursive(scalars, nested, max_leaves=4))
    output = OutputFormat.of(dtype)
    value = data.draw(strategy)
    assert output.dtype == dtype
    answer = value if dtype.is_struct() else {"value": value}
    parsed = output.parse(json.dumps(answer, default=lambda moment: moment.isoformat()))
    assert parsed == value
    assert in_column(output, parsed) == [value]
    strict = output.strict_schema()
    assert strict is not None
    assert_strict(strict)
