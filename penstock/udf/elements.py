"""Row functions over the elements of lists: ``col("l").list_map(my_func(element()))``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.expression_text import describe
from penstock.expr.nodes import ELEMENT, Expr, ListApply, UdfCall, columns_of, has_udf, unalias
from penstock.types import DataType


@dataclass(frozen=True, slots=True)
class OverElements:
    """A call of a row function for each element; ``lists`` are the positions of the arguments that are lists."""

    function: Callable[..., Any]
    lists: tuple[int, ...]

    def __call__(self, *args: Any) -> list[Any] | None:
        return None if self._has_null(args) else [self.function(*each) for each in self._rows(args)]

    async def gather(self, *args: Any) -> list[Any] | None:
        if self._has_null(args):
            return None
        return list(await asyncio.gather(*(self.function(*each) for each in self._rows(args))))

    def _has_null(self, args: tuple[Any, ...]) -> bool:
        return any(args[position] is None for position in self.lists)

    def _rows(self, args: tuple[Any, ...]) -> Iterator[list[Any]]:
        for number in range(len(args[self.lists[0]])):
            yield [arg[number] if place in self.lists else arg for place, arg in enumerate(args)]


def call_over_elements(lists: Expr, body: Expr) -> Expr | None:
    """Return the call of a row function for each element of lists, or None if ``body`` calls no function."""
    if not has_udf(body):
        return None
    call = unalias(body)
    target = call.udf.target if isinstance(call, UdfCall) else None
    if not isinstance(call, UdfCall) or target is None or call.kwargs or target.is_class or target.pil_parameters:
        raise _unsupported(body)
    if target.is_batch or target.is_generator or any(map(has_udf, call.args)):
        raise _unsupported(body)
    places = tuple(place for place, arg in enumerate(call.args) if ELEMENT.column in columns_of(arg))
    if not places:
        raise _unsupported(body)
    each = OverElements(target.function, places)
    over = replace(target, function=each.gather if target.is_async else each)
    args = tuple(ListApply(lists, arg, "map") if place in places else arg for place, arg in enumerate(call.args))
    return UdfCall(replace(call.udf, target=over, return_dtype=DataType.list(call.udf.return_dtype)), args)


def _unsupported(body: Expr) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"list_map takes one call of a row function, such as f(element()), not {describe(body)}; "
        "for other functions use explode, or a function of whole lists"
    )
