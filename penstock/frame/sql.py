"""``sql``: a query over DataFrames. DuckDB runs it, except for models and Python functions, which run as stages.

A call that DuckDB cannot make is *lifted*: one query computes its arguments, a stage of the engine makes the call, and
another query continues with the result in a column.

    select prompt(text) as s from t where a > 1
    ->  select text as a0 from t where a > 1   ->   f0 = prompt(col("a0"))   ->   select f0 as s from lifted
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from penstock.ai.decisions.questions import MAKERS
from penstock.errors import InvalidArgumentError, did_you_mean, users_frame
from penstock.expr.column import Expression, col
from penstock.frame.dataframe import DataFrame
from penstock.frame.read.memory import from_pydict
from penstock.frame.sql_expression import constant_argument, public_functions
from penstock.frame.sql_trees import (
    column_tree,
    columns_read,
    conjunction,
    conjuncts,
    literal_one,
    names_used,
    repeated_columns,
    select_all_from,
    select_all_of,
    table_tree,
    without_calls,
    without_places,
)
from penstock.plan import nodes
from penstock.plan.duckdb_text import quoted
from penstock.plan.relations import DeferredRelation, Relation
from penstock.relational.parser import (
    Tree,
    function_names,
    parse,
    render,
    rewrite_tree,
    sql_error,
    walk_tree,
)
from penstock.relational.sql_result import SqlMaker
from penstock.types import DataType, Field, Schema
from penstock.types.supertype import has_null_type
from penstock.udf.decorators import BoundMethod, ClsInstance, Func

_attached: dict[str, Callable[..., Any]] = {}


def sql(query: str, register_globals: bool = True, **tables: DataFrame) -> DataFrame:
    """Run a SELECT statement in the dialect of DuckDB; the result is lazy, as with any verb.

    A table is a DataFrame passed by name, or a variable of the caller unless ``register_globals`` is false. You can
    call the functions of DuckDB, functions of ``penstock.functions`` that it lacks (``prompt``, ``embed_text``, ...),
    your variables made with ``ps.func``, and functions from ``attach_function``.

    >>> reviews = ps.from_pydict({"stars": [5, 1], "text": ["good", "bad"]})
    >>> ps.sql("select upper(text) as t from reviews where stars > 3").to_pydict()
    {'t': ['GOOD']}
    """
    scope = _callers_variables() if register_globals else {}
    return _Query(query, scope, tables).frame(parse(query), query)


def attach_function(function: Callable[..., Any], alias: str | None = None) -> None:
    """Make a function of ``ps.func`` known to ``sql`` by its name, or by ``alias``."""
    if not callable(function):
        raise InvalidArgumentError(f"attach_function takes a function made with ps.func; got {function!r}")
    _attached[str(alias or getattr(function, "__name__", "")).lower()] = function


def detach_function(alias: str) -> None:
    """Undo ``attach_function``."""
    if _attached.pop(alias.lower(), None) is None:
        raise InvalidArgumentError(f"No function {alias!r} is attached; there are: {', '.join(_attached) or 'none'}")


def _callers_variables() -> Mapping[str, Any]:
    frame = users_frame()
    return {**frame.f_globals, **frame.f_locals}


class _Query:
    """Builds the DataFrame of one statement."""

    def __init__(self, text: str, scope: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        self._text = text
        # SQL ignores case: a table that is passed hides every variable of its name.
        self._variables = {name.lower(): value for each in (scope, tables) for name, value in each.items()}
        self._frames: dict[str, DataFrame] = {}  # parts of the statement that became DataFrames
        self._numbers = itertools.count()

    def frame(self, query: Tree, text: str | None = None) -> DataFrame:
        """Return the DataFrame of a query; ``text`` is its SQL as the user wrote it."""
        if not any(map(self._is_lifted, walk_tree(query))):
            return self._related(query, text or render(query))
        if query["type"] == "SET_OPERATION_NODE":
            children = [select_all_from(self._bound(self.frame(child))) for child in query["children"]]
            return self.frame({**query, "children": children})
        if query["type"] != "SELECT_NODE":
            raise InvalidArgumentError(f"sql cannot call models or Python functions in a {query['type'].lower()}")
        for entry in query["cte_map"]["map"]:
            self._frames[entry["key"].lower()] = self.frame(entry["value"]["query_node"])
        query = {**query, "cte_map": {"map": []}, "from_table": rewrite_tree(query["from_table"], self._as_table)}
        for node in filter(self._is_lifted, walk_tree(query["from_table"])):
            raise self._refusal(
                node, f"{node['function_name']} cannot be in the condition of a join; call it in a subquery after FROM"
            )
        return self._lifted(query) if self._next_calls(query) else self.frame(query)

    # --- queries that DuckDB runs ---

    def _related(self, query: Tree, text: str) -> DataFrame:
        local_names = {
            entry["key"].lower() for node in walk_tree(query) if "cte_map" in node for entry in node["cte_map"]["map"]
        }
        uses = [
            node["table_name"].lower()
            for node in walk_tree(query)
            if node.get("type") == "BASE_TABLE" and node["table_name"].lower() not in local_names
        ]
        frames = {name: self._table(name, query) for name in dict.fromkeys(uses)}
        frames = frames or {"no_table": from_pydict({"row": [0]})}  # the engine runs queries over at least one input
        once = [name for name in frames if uses.count(name) == 1]
        is_streamed = bool(once) and not local_names
        names = [once[0], *(name for name in frames if name != once[0])] if is_streamed else list(frames)
        schemas = {name: _columns_of(frame, query) for name, frame in frames.items()}
        if repeated := repeated_columns(query, schemas):
            text = f"select * from ({text.rstrip('; ')}\n) as joined({', '.join(map(quoted, repeated))})"
        selected = tuple(
            (item["alias"] or item["column_names"][-1], item["column_names"][-1])
            for item in query.get("select_list", ())
            if item["class"] == "COLUMN_REF"
        )
        read = tuple(tuple(schemas[name].names) for name in names)
        maker = SqlMaker(text, self._text, tuple(names), read, selected, is_streamed, tuple(public_functions()))
        inputs = tuple(_narrowed(frames[name], schemas[name], query)._plan for name in names)
        relation: Relation = DeferredRelation(maker, tuple(names), is_streamed)
        has_nulls = any(has_null_type(field.type) for schema in schemas.values() for field in schema.to_arrow())
        is_deferred = any(plan.schema is None for plan in inputs)  # a first row may not have the types of all rows
        if not (is_deferred and has_nulls):  # some functions do not take a column that is only known to have nulls
            made = maker.made(*(schemas[name] for name in names))
            relation = relation if is_deferred else made
        return DataFrame(nodes.Relate(inputs, relation))

    def _table(self, name: str, query: Tree) -> DataFrame:
        found = self._frames.get(name, self._variables.get(name))
        if isinstance(found, DataFrame):
            return found
        node = next(n for n in walk_tree(query) if n.get("type") == "BASE_TABLE" and n["table_name"].lower() == name)
        known = [key for key, value in self._variables.items() if isinstance(value, DataFrame)]
        problem = f"there is no DataFrame {name!r}" if found is None else f"{name!r} is not a DataFrame"
        raise self._refusal(node, f"{problem}; pass one: ps.sql(..., {name}=df).{did_you_mean(name, known)}")

    # --- calls that stages make ---

    def _is_lifted(self, node: Tree) -> bool:
        return node.get("class") == "FUNCTION" and not node["is_operator"] and self._function(node) is not None

    def _function(self, node: Tree) -> Callable[..., Any] | None:
        """Return the function of a call that DuckDB cannot make."""
        name = node["function_name"].lower()
        variable = self._variables.get(name)
        if name in _attached:
            return _attached[name]
        if isinstance(variable, Func | BoundMethod | ClsInstance):
            return variable
        return None if name in function_names() or name in MAKERS else public_functions().get(name)

    def _next_calls(self, query: Tree) -> list[Tree]:
        """Return the calls to make next: the innermost calls, and among them first the calls in WHERE."""
        for part in (query["where_clause"], {**query, "from_table": None, "where_clause": None}):
            calls = [node for node in walk_tree(part) if self._is_lifted(node)]
            innermost = [call for call in calls if not any(map(self._is_lifted, walk_tree(call["arguments"])))]
            if innermost:
                return innermost
        return []

    def _lifted(self, query: Tree) -> DataFrame:
        """Return the DataFrame of a query whose next calls are made by stages."""
        calls = self._next_calls(query)
        self._check(query, calls)
        kept: list[Tree] = []
        waiting: list[Tree] = []
        for condition in conjuncts(query["where_clause"]):
            (waiting if any(map(self._is_lifted, walk_tree(condition))) else kept).append(condition)
        rest = {**query, "where_clause": conjunction(waiting), "from_table": None}

        columns: dict[str, Tree] = {}  # the select list of the first query
        names: dict[tuple[str, ...], str] = {}
        for node in columns_read(without_calls(rest, calls)):
            key = tuple(name.lower() for name in node["column_names"])
            if key not in names:
                names[key] = self._name("column")
                columns[names[key]] = node
        equal_calls: dict[str, list[Tree]] = {}
        for call in calls:
            equal_calls.setdefault(without_places(call), []).append(call)
        calls_by_id = {
            id(call): name for same in equal_calls.values() for name in [self._name("call")] for call in same
        }
        expressions = {calls_by_id[id(call)]: self._expression(call, columns) for call, *_ in equal_calls.values()}
        stars = [item for item in query["select_list"] if item["class"] == "STAR"]
        selected = [*({**star} for star in stars[:1]), *({**tree, "alias": name} for name, tree in columns.items())]
        modifiers = query["modifiers"] if not waiting and self._can_choose_before_calls(query) else []
        first = {
            **query, "modifiers": modifiers, "select_list": selected or [literal_one()],
            "where_clause": conjunction(kept),
            "group_expressions": [], "group_sets": [], "having": None, "qualify": None, "sample": None,
        }  # fmt: skip
        source = self.frame(select_all_of(first))
        table = self._bound(source.with_columns(expressions))

        def change(node: Tree) -> Any:
            if id(node) in calls_by_id:
                return column_tree(calls_by_id[id(node)], node["alias"])
            if node.get("class") == "COLUMN_REF" and (key := tuple(n.lower() for n in node["column_names"])) in names:
                return column_tree(names[key], node["alias"])
            return None

        items = []
        for item in query["select_list"]:
            if item["class"] == "STAR":
                items += [column_tree(name, "") for name in source.columns if name not in columns]
            else:
                name = item["alias"] or item.get("function_name") or item.get("column_names", [""])[-1]
                items.append({**rewrite_tree(item, change), "alias": name})
        second = rewrite_tree({**rest, "select_list": []}, change)
        return self.frame({**second, "select_list": items, "from_table": table_tree(table)})

    def _expression(self, call: Tree, columns: dict[str, Tree]) -> Expression:
        """Return the expression of a call; arguments that read columns are added to ``columns``."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for argument in call["arguments"]:
            tree = argument["expression"]
            if any(node.get("class") == "COLUMN_REF" for node in walk_tree(tree)):
                name = self._name("argument")
                columns[name] = tree
                value: Any = col(name)
            else:
                value = self._constant(call, len(positional), argument, columns)
            if argument["name"]:
                named[argument["name"]] = value
            else:
                positional.append(value)
        function = self._function(call)
        assert function is not None
        try:
            expression = function(*positional, **named)
        except InvalidArgumentError:
            raise
        except TypeError as exc:  # the arguments do not fit
            raise self._refusal(call, str(exc)) from None
        if not isinstance(expression, Expression):
            raise self._refusal(call, f"{call['function_name']} has no column as an argument")
        return expression

    def _constant(self, call: Tree, position: int, argument: Tree, columns: dict[str, Tree]) -> Any:
        """Return a constant argument; the columns that a template names are added to ``columns``."""
        from penstock.expr.templates import with_other_fields
        from penstock.functions.ai import TEMPLATE_ARGUMENTS

        value = constant_argument(argument["expression"])
        name = call["function_name"].lower()
        templates = TEMPLATE_ARGUMENTS.get(name, ()) if self._function(call) is public_functions().get(name) else ()
        is_template = argument["name"] in templates if argument["name"] else bool(templates) and position == 0
        if not is_template or not isinstance(value, str):
            return value

        def rename(field: str) -> str:
            columns[added := self._name("argument")] = column_tree(field, "")
            return f"{{{added}}}"

        return with_other_fields(name, value, rename)

    def _check(self, query: Tree, calls: list[Tree]) -> None:
        if query["aggregate_handling"] != "STANDARD_HANDLING":
            raise InvalidArgumentError("sql cannot call models or Python functions with GROUP BY ALL; name the keys")
        for call in calls:
            if any(node.get("function_name") in function_names("aggregate") for node in walk_tree(call["arguments"])):
                raise self._refusal(
                    call, f"{call['function_name']} cannot take an aggregate; compute that in a subquery after FROM"
                )
        for node in walk_tree({**query, "from_table": None}):
            if node.get("class") == "SUBQUERY":
                raise self._refusal(node, "a query with models or Python functions takes subqueries only after FROM")

    def _can_choose_before_calls(self, query: Tree) -> bool:
        """Return whether ORDER BY and LIMIT choose the same rows before the calls of the select list are made."""
        modifiers = {each["type"]: each for each in query["modifiers"]}
        limit, order = modifiers.pop("LIMIT_MODIFIER", None), modifiers.pop("ORDER_MODIFIER", None)
        if modifiers or limit is None or limit["limit_type"] != "ROW_COUNT" or limit["offset"]:
            return False
        makes_rows = function_names("aggregate") | {"unnest"}
        if any(query[part] for part in ("group_expressions", "having", "qualify", "sample")) or any(
            node.get("class") == "WINDOW" or node.get("function_name") in makes_rows
            for node in walk_tree(query["select_list"])
        ):
            return False
        aliases = {item["alias"].lower() for item in query["select_list"]}
        return order is None or all(
            by["expression"]["class"] == "COLUMN_REF" and by["expression"]["column_names"][0].lower() not in aliases
            for by in order["orders"]
        )

    def _refusal(self, node: Tree, message: str) -> InvalidArgumentError:
        return sql_error(self._text, node["query_location"], message)

    def _as_table(self, node: Tree) -> Tree | None:
        """Replace a subquery after FROM that has calls by a table."""
        if node.get("type") != "SUBQUERY" or not any(map(self._is_lifted, walk_tree(node))):
            return None
        return table_tree(self._bound(self.frame(node["subquery"]["node"])), node["alias"])

    def _bound(self, frame: DataFrame) -> str:
        name = self._name("table")
        self._frames[name] = frame
        return name

    def _name(self, kind: str) -> str:
        return f"__{kind}_{next(self._numbers)}"


def _columns_of(frame: DataFrame, query: Tree) -> Schema:
    """Return the columns of a table. If they are unknown, return the columns that the query names, without types."""
    if frame.schema.names or any(node.get("class") == "STAR" for node in walk_tree(query)):
        return frame.schema
    return Schema([Field(name, DataType.null()) for name in names_used(query) or ["no_column"]])


def _narrowed(frame: DataFrame, schema: Schema, query: Tree) -> DataFrame:
    """Return the DataFrame with the columns that the query may read: all of them if it has a star."""
    used = {name.lower() for name in names_used(query)}
    if not used and any(node.get("class") == "STAR" for node in walk_tree(query)):
        return frame
    kept = [name for name in schema.names if name.lower() in used] or schema.names[:1]
    return frame if len(kept) == len(frame.columns) else frame.select(*kept)
