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


def with_renamed_fields(function: str, template: str, rename: Callable[[str], str]) -> str:
    """Return a template with other names of columns.

    >>> with_renamed_fields("prompt", "{{{a}", lambda name: name * 2)
    '{{{aa}'
    """
    texts, fields = split_template(function, template)
    parts = [text.replace("{", "{{").replace("}", "}}") for text in texts]
    return parts[0] + "".join(f"{{{rename(field)}}}{part}" for field, part in zip(fields, parts[1:], strict=True))


def _named(function: str, fields: Sequence[str]) -> Sequence[str]:
    if "" in fields:
        raise InvalidArgumentError(f"{function}: {{}} in a template needs the name of a column, as in {{text}}")
    return fields
