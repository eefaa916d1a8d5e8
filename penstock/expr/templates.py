"""Templates: texts in which ``{name}`` stands for a column, for ``format`` and for the texts of AI functions."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import InvalidArgumentError, shortened
from penstock.expr.column import Expression, call, col
from penstock.expr.nodes import Literal


def split_template(function: str, template: str) -> tuple[list[str], list[str]]:
    """Return the texts around the fields of a template, and the names of its fields.

    >>> split_template("format", "{{}} {name}!")
    (['{} ', '!'], ['name'])
    """
    texts, fields = [""], list[str]()
    try:
        for literal, field, spec, conversion in string.Formatter().parse(template):
            texts[-1] += literal
            if field is not None:
                if spec or conversion or field != field.strip(" \n\"'"):
                    raise ValueError(f"{'{' + shortened(field, 20)!r} does not name a column")
                fields.append(field)
                texts.append("")
    except ValueError as exc:
        shown = shortened(repr(template), 60)
        raise InvalidArgumentError(
            f"{function}: {shown} is not a template: {exc}; write {{{{ and }}}} for braces"
        ) from None
    return texts, fields


def filled(texts: Sequence[str], columns: Sequence[Any]) -> Expression:
    """Return the expression of a template: a column, given by name or as an expression, between each two texts."""
    return call("format", *(col(each) if isinstance(each, str) else each for each in columns), texts=texts)


def text_argument(function: str, value: Any, effect: str | None) -> Any:
    """Return the texts of an AI function as a column; a plain string is a template.

    Refuse a template without columns, which has the named effect. None accepts it.

    >>> text_argument("prompt", "Summarise: {text}", "asks the same question for every row")
    format("Summarise: {text}")
    """
    if isinstance(value, Expression) and isinstance(node := value._node, Literal):
        text = node.scalar.as_py()
        return filled([text], []) if isinstance(text, str) else value
    if not isinstance(value, str):
        return value
    texts, fields = split_template(function, value)
    if not fields and effect is not None:
        raise InvalidArgumentError(
            f"{function}: {shortened(repr(value), 60)} names no column, so it {effect}; write {{name}} or "
            "ps.col('name') for a column, or use ps.lit(...) if you mean it."
        )
    return filled(texts, _named(function, fields))


def constant_or_filled(function: str, value: Any) -> Any:
    """Return the expression of a template, or its text if it names no column."""
    if not isinstance(value, str):
        return value
    texts, fields = split_template(function, value)
    return filled(texts, _named(function, fields)) if fields else texts[0]


def with_other_fields(function: str, template: str, replace: Callable[[str], str]) -> str:
    """Return a template with other text in place of each field.

    >>> with_other_fields("prompt", "{{{a}: {b}", {"a": "{aa}", "b": with_doubled_braces("{1}")}.__getitem__)
    '{{{aa}: {{1}}'
    """
    texts, fields = split_template(function, template)
    pairs = zip(map(with_doubled_braces, texts), [*map(replace, fields), ""], strict=True)
    return "".join(text + value for text, value in pairs)


def with_doubled_braces(text: str) -> str:
    """Return a template that stands for the text itself."""
    return text.replace("{", "{{").replace("}", "}}")


def _named(function: str, fields: Sequence[str]) -> Sequence[str]:
    if "" in fields:
        raise InvalidArgumentError(f"{function}: {{}} in a template needs the name of a column, as in {{text}}")
    return fields
