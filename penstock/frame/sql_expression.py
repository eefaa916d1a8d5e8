"""``sql_expr``: one expression in SQL as an ``Expression``."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock.ai.decisions.questions import MAKERS
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression, col, lit
from penstock.expr.missing_functions import way_around
from penstock.expr.nodes import Literal
from penstock.expr.public_functions import FUNCTIONS
from penstock.expr.registry import load_functions
from penstock.relational.parser import SELECT, Tree, constant, parse_expression, sql_error, walk_tree
from penstock.relational.scalar import scalar_functions
from penstock.types import DataType
from penstock.types.plain import arrow_scalar

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "COMPARE_EQUAL": operator.eq,
    "COMPARE_NOTEQUAL": operator.ne,
    "COMPARE_LESSTHAN": operator.lt,
    "COMPARE_LESSTHANOREQUALTO": operator.le,
    "COMPARE_GREATERTHAN": operator.gt,
    "COMPARE_GREATERTHANOREQUALTO": operator.ge,
    "COMPARE_NOT_DISTINCT_FROM": lambda left, right: left.eq_null_safe(right),
    "COMPARE_DISTINCT_FROM": lambda left, right: ~left.eq_null_safe(right),
}
_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": lambda left, right=None: left if right is None else left + right,
    "-": lambda left, right=None: -left if right is None else left - right,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "^": operator.pow,
    "||": operator.add,
    "~~": lambda text, pattern: text.like(pattern),
    "!~~": lambda text, pattern: ~text.like(pattern),
    "~~*": lambda text, pattern: text.ilike(pattern),
    "!~~*": lambda text, pattern: ~text.ilike(pattern),
}
_PREDICATES: dict[str, Callable[..., Any]] = {
    "OPERATOR_IS_NULL": lambda child: child.is_null(),
    "OPERATOR_IS_NOT_NULL": lambda child: child.not_null(),
    "OPERATOR_NOT": operator.invert,
    "OPERATOR_COALESCE": lambda *children: public_functions()["coalesce"](*children),
}


def sql_expr(sql: str) -> Expression:
    """Return an expression written in SQL, with functions of ``penstock.functions`` or scalar functions of DuckDB.

    >>> ps.from_pydict({"a": [1, 2]}).select(ps.sql_expr("a * 10 as b")).to_pydict()
    {'b': [10, 20]}
    """
    tree = parse_expression(sql)
    expression = translated(tree, functools.partial(_refusal, sql))
    return expression.alias(tree["alias"]) if tree["alias"] else expression


def _refusal(sql: str, tree: Tree, what: str) -> InvalidArgumentError:
    return sql_error(sql, tree["query_location"] - len(SELECT), what)


def translated(tree: Tree, refuse: Callable[[Tree, str], InvalidArgumentError]) -> Expression:
    """Return the expression of a syntax tree; ``refuse`` makes the error for a part that has none."""

    def of(part: Tree) -> Expression:
        return translated(part, refuse)

    match tree["class"]:
        case "COLUMN_REF":
            first, *fields = tree["column_names"]
            return functools.reduce(lambda outer, name: outer[name], fields, col(first))
        case "STAR" if not tree["relation_name"] and not tree["exclude_list"]:
            return col("*")
        case "CONSTANT":
            return lit(constant(tree))
        case "COMPARISON" if tree["type"] in _COMPARISONS:
            compared: Expression = _COMPARISONS[tree["type"]](of(tree["left"]), of(tree["right"]))
            return compared
        case "CONJUNCTION":
            combine = operator.and_ if tree["type"] == "CONJUNCTION_AND" else operator.or_
            return functools.reduce(combine, map(of, tree["children"]))
        case "BETWEEN":
            return of(tree["input"]).between(of(tree["lower"]), of(tree["upper"]))
        case "CASE":
            result = of(tree["else_expr"])
            for check in reversed(tree["case_checks"]):
                result = of(check["when_expr"]).if_else(of(check["then_expr"]), result)
            return result
        case "CAST":
            dtype = _dtype(tree["type_expr"], refuse)
            if tree["child"]["class"] == "CONSTANT" and dtype.is_temporal():
                with suppress(pa.ArrowException):  # a constant, which sources can check; a mistake is found at the end
                    return Expression(Literal(arrow_scalar(constant(tree["child"])).cast(dtype.arrow)))
            return of(tree["child"]).try_cast(dtype) if tree["try_cast"] else of(tree["child"]).cast(dtype)
        case "OPERATOR":
            return _operator(tree, of, refuse)
        case "FUNCTION":
            return _call(tree, of, refuse)
    raise refuse(tree, f"{tree['class'].lower()} is not possible in an expression; use ps.sql for a whole query")


def _operator(tree: Tree, of: Callable[[Tree], Expression], refuse: Callable[..., InvalidArgumentError]) -> Expression:
    kind, children = tree["type"], tree["children"]
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        found = of(children[0]).is_in([constant(each) for each in children[1:]])
        return found if kind == "COMPARE_IN" else ~found
    if kind in ("ARRAY_EXTRACT", "STRUCT_EXTRACT"):
        key = constant(children[1])
        return of(children[0])[key - 1 if isinstance(key, int) and key > 0 else key]  # SQL counts from 1
    if kind in _PREDICATES:
        result: Expression = _PREDICATES[kind](*map(of, children))
        return result
    raise refuse(tree, f"{kind.lower()} is not possible in an expression; use ps.sql for a whole query")


def _call(tree: Tree, of: Callable[[Tree], Expression], refuse: Callable[..., InvalidArgumentError]) -> Expression:
    name = tree["function_name"].lower()
    arguments = [(each["name"], each["expression"]) for each in tree["arguments"]]
    if tree["is_operator"] and name in _OPERATORS:
        result: Expression = _OPERATORS[name](*(of(each) for _, each in arguments))
        return result
    if name == "count_star":
        return lit(1).count()
    if name == "list_value":
        return lit(constant(tree))
    function = public_functions().get(name)
    positional = [_argument(each, of) for given, each in arguments if not given]
    if function is None and name in scalar_functions():
        return duckdb_function(name, *positional)
    if function is None:
        hint = way_around(name) or did_you_mean(name, list(public_functions()))
        raise refuse(tree, f"there is no function {name!r}.{hint}")
    result = function(*positional, **{given: constant(each) for given, each in arguments if given})
    return result


def _argument(tree: Tree, of: Callable[[Tree], Expression]) -> Any:
    """Return an argument of a function: the value of a constant, else an expression."""
    is_constant = tree["class"] == "CONSTANT" or tree.get("function_name") in ("list_value", "struct_pack")
    return constant_argument(tree) if is_constant else of(tree)


def constant_argument(tree: Tree) -> Any:
    """Return the value of an argument that reads no column; questions of ``decide`` may be in it."""
    if not any(node.get("function_name") in MAKERS for node in walk_tree(tree)):
        return constant(tree)
    arguments = [(each["name"], constant_argument(each["expression"])) for each in tree["arguments"]]
    if tree["function_name"] == "struct_pack":
        return dict(arguments)
    return MAKERS[tree["function_name"]](*(value for _, value in arguments))


def duckdb_function(name: str, *arguments: Any) -> Expression:
    """Call a scalar function of DuckDB by its name."""
    called: Expression = public_functions()["duckdb_function"](name, *arguments)
    return called


def public_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of ``penstock.functions`` by name."""
    load_functions()
    return FUNCTIONS


def _dtype(tree: Tree, refuse: Callable[..., InvalidArgumentError]) -> DataType:
    # These have another size in SQL than in Python, or no name in Python.
    names = {"integer": "int32", "float": "float32", "hugeint": "int64", "ubigint": "uint64", "uinteger": "uint32"}
    name = tree["type_name"].lower()
    try:
        return DataType.of(names.get(name, name))
    except Exception:
        raise refuse(tree, f"there is no type {tree['type_name']!r}") from None
