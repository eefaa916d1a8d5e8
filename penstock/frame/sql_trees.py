"""Pieces of parsed SQL: what a query reads, and trees made from others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.relational.parser import Tree, parse, rewrite_tree, walk_tree
from penstock.types import Schema


def repeated_columns(query: Tree, schemas: Mapping[str, Schema]) -> list[str]:
    """Return the columns of ``select *`` over a join in which a name appears again; empty without such a name.

    The later column gets the name of its table, as in ``b.k``.
    """
    if not _is_star(query.get("select_list", [])):
        return []
    names: dict[str, None] = {}
    num_repeated = num_columns = 0
    for table in _joined_tables(query["from_table"]):
        if (schema := schemas.get(table["table_name"].lower())) is None or table["column_name_alias"]:
            return []
        label = table["alias"] or table["table_name"]
        num_repeated += sum(name in names for name in schema.names)
        num_columns += len(schema)
        names |= dict.fromkeys([f"{label}.{name}" if name in names else name for name in schema.names])
    return list(names) if num_repeated and len(names) == num_columns else []


def _joined_tables(node: Tree) -> list[Tree]:
    """Return the tables of joins that keep all columns of both sides, from left to right; nothing for other joins."""
    if node["type"] == "BASE_TABLE":
        return [node]
    is_kept = node["type"] == "JOIN" and node["ref_type"] in ("REGULAR", "CROSS") and not node["using_columns"]
    if not is_kept or node["join_type"] in ("SEMI", "ANTI", "MARK"):
        return []
    left, right = _joined_tables(node["left"]), _joined_tables(node["right"])
    return [*left, *right] if left and right else []


def _is_star(select_list: list[Tree]) -> bool:
    changes = ("relation_name", "exclude_list", "replace_list", "rename_list", "columns", "expr")
    return [item["class"] for item in select_list] == ["STAR"] and not any(select_list[0][name] for name in changes)


def names_used(query: Tree) -> list[str]:
    """Return the names of columns in a query; none if it has a star."""
    names = list[str]()
    for node in walk_tree(query):
        if node.get("class") == "STAR":
            return []
        names += [node["column_names"][-1]] if node.get("column_names") else []
        names += node.get("using_columns", ())
    return list(dict.fromkeys(names))


def columns_read(query: Tree) -> Iterator[Tree]:
    """Yield the columns that a query reads, without names of its select list and parameters of lambdas."""
    aliases = {item["alias"].lower() for item in query["select_list"] if item["alias"]}
    parameters = {
        name.lower() for node in walk_tree(query) if node.get("class") == "LAMBDA" for name in _parameters(node["lhs"])
    }
    for part in (query["select_list"], query["where_clause"]):
        yield from (ref for ref in _refs(part) if ref["column_names"][0].lower() not in parameters)
    for ref in _refs({**query, "select_list": None, "where_clause": None}):
        if len(ref["column_names"]) > 1 or ref["column_names"][0].lower() not in aliases | parameters:
            yield ref


def without_calls(query: Tree, calls: list[Tree]) -> Tree:
    """Return a query with constants in place of calls."""
    numbers = {id(call) for call in calls}

    def change(node: Tree) -> Tree | None:
        return {**literal_one(), "alias": node["alias"]} if id(node) in numbers else None

    result: Tree = rewrite_tree(query, change)
    return result


def without_places(call: Tree) -> str:
    """Return a text that equal calls share, wherever they stand in the query and whatever their alias is."""

    def change(node: Tree) -> Any:
        has_place = node.get("query_location_length")
        return rewrite_tree({**node, "query_location": 0, "query_location_length": 0}, change) if has_place else None

    return json.dumps(rewrite_tree({**call, "alias": ""}, change))


def _refs(part: Any) -> Iterator[Tree]:
    return (node for node in walk_tree(part) if node.get("class") == "COLUMN_REF")


def _parameters(tree: Tree) -> Iterator[str]:
    return (name for ref in _refs(tree) for name in ref["column_names"])


def conjuncts(condition: Tree | None) -> list[Tree]:
    if condition is None:
        return []
    if condition["type"] == "CONJUNCTION_AND":
        return [part for child in condition["children"] for part in conjuncts(child)]
    return [condition]


def conjunction(conditions: list[Tree]) -> Tree | None:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    template: Tree = parse("select 1 where true and true")["where_clause"]
    return {**template, "children": conditions}


def column_tree(name: str, alias: str) -> Tree:
    template: Tree = parse("select x")["select_list"][0]
    return {**template, "column_names": [name], "alias": alias}


def literal_one() -> Tree:
    one: Tree = parse("select 1 as one")["select_list"][0]
    return one


def table_tree(name: str, alias: str = "") -> Tree:
    template: Tree = parse("select 1 from x")["from_table"]
    return {**template, "table_name": name, "qualified_name": {"path": [name]}, "alias": alias}


def select_all_from(table: str) -> Tree:
    return {**parse("select * from x"), "from_table": table_tree(table)}


def select_all_of(query: Tree) -> Tree:
    """Return ``select * from (query)``, in which DuckDB gives columns of one name different names."""
    template = parse("select * from (select 1) x")
    return {**template, "from_table": {**template["from_table"], "subquery": {"node": query, "named_param_map": []}}}
