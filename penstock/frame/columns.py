"""Verbs that add, remove and rename columns."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Self

from penstock.errors import InvalidArgumentError, shortened
from penstock.expr.column import Expression, checked_name, col, lit
from penstock.expr.nodes import Alias, ColumnRef, Expr, Star, Unnest
from penstock.frame.aggregation import aggregated, has_aggregates
from penstock.frame.lazy_table import LazyTable
from penstock.frame.projection import projected, with_added
from penstock.plan import nodes
from penstock.plan.nodes import check_columns

ColumnInput = str | Expression


class ColumnVerbs(LazyTable):
    def select(self, *columns: ColumnInput, **named: ColumnInput) -> Self:
        """Keep only these columns or expressions, in this order. Aggregates combine all rows to one, as in ``agg``.

        >>> ps.from_pydict({"a": [1], "b": [2]}).select("b", c=ps.col("a") + 1).to_pydict()
        {'b': [2], 'c': [2]}
        """
        exprs = [to_node(column) for column in columns]
        exprs += [Alias(to_node(value), name) for name, value in named.items()]
        if any(map(has_aggregates, exprs)):
            return self._with(aggregated(self._plan, [], exprs, "select"))
        return self._with(projected(self._plan, exprs))

    def with_column(self, name: str, expr: Any) -> Self:
        """Add a column, or replace one in its place.

        >>> ps.from_pydict({"a": [1]}).with_column("b", ps.col("a") + 1).to_pydict()
        {'a': [1], 'b': [2]}
        """
        return self.with_columns({name: expr})

    def with_columns(self, *columns: Mapping[str, Any] | Expression, **named: Any) -> Self:
        """Add or replace several columns; each is computed from the columns before the change.

        They are given by keyword, as dicts by name, or as expressions that have a name.

        >>> ps.from_pydict({"a": [1]}).with_columns(a=ps.col("a") * 2, b=ps.col("a")).to_pydict()
        {'a': [2], 'b': [1]}
        """
        added: list[Expr] = []
        for each in (*columns, named):
            if isinstance(each, Expression):
                added.append(each._node)
            else:
                added += [named_node(name, value) for name, value in checked_mapping("with_columns", each).items()]
        return self._with(with_added(self._plan, added))

    def with_column_renamed(self, existing: str, new: str) -> Self:
        """Rename one column.

        >>> ps.from_pydict({"a": [1]}).with_column_renamed("a", "b").columns
        ['b']
        """
        return self.rename_columns({existing: new})

    def rename_columns(self, names: Mapping[str, str]) -> Self:
        """Rename several columns, given as old name to new.

        >>> ps.from_pydict({"a": [1], "b": [2]}).rename_columns({"a": "x"}).columns
        ['x', 'b']
        """
        schema = self._plan.schema
        renamed = {
            old: named_node(new, col(checked_name(old)))
            for old, new in checked_mapping("rename_columns", names).items()
        }
        check_columns(schema, tuple(renamed), "rename_columns")
        if schema is None:  # a worker orders the columns once they are known
            return self._with(nodes.Project(self._plan, (Star(tuple(renamed)), *renamed.values())))
        return self._with(nodes.Project(self._plan, tuple(renamed.get(name, ColumnRef(name)) for name in schema.names)))

    def rename(self, names: Mapping[str, str]) -> Self:
        """Rename several columns, given as old name to new; the same as ``rename_columns``."""
        return self.rename_columns(names)

    def exclude(self, *names: str) -> Self:
        """Remove columns.

        >>> ps.from_pydict({"a": [1], "b": [2]}).exclude("a").to_pydict()
        {'b': [2]}
        """
        check_columns(self._plan.schema, tuple(map(checked_name, names)), "exclude")
        return self._with(nodes.Project(self._plan, (Star(names),)))

    def drop(self, *names: str | Sequence[str]) -> Self:
        """Remove columns, given one by one or as a list.

        >>> ps.from_pydict({"a": [1], "b": [2]}).drop("a").columns
        ['b']
        """
        return self.exclude(*[each for name in names for each in ([name] if isinstance(name, str) else name)])

    def drop_columns(self, *names: str | Sequence[str]) -> Self:
        """Remove columns; the same as ``drop``."""
        return self.drop(*names)

    def unpivot(
        self,
        ids: str | list[str],
        values: str | list[str] | None = None,
        variable_name: str = "variable",
        value_name: str = "value",
    ) -> Self:
        """Turn each value column into a row with its name and its value.

        >>> ps.from_pydict({"k": ["p"], "a": [1], "b": [2]}).unpivot("k").to_pydict()
        {'k': ['p', 'p'], 'variable': ['a', 'b'], 'value': [1, 2]}
        """
        id_names = (ids,) if isinstance(ids, str) else tuple(ids)
        if values is None:
            values = [name for name in self.columns if name not in id_names]
        value_names = (values,) if isinstance(values, str) else tuple(values)
        check_columns(self._plan.schema, id_names + value_names, "unpivot")
        return self._with(nodes.Unpivot(self._plan, id_names, value_names, variable_name, value_name))

    def melt(
        self,
        ids: str | list[str],
        values: str | list[str] | None = None,
        variable_name: str = "variable",
        value_name: str = "value",
    ) -> Self:
        """Turn each value column into a row with its name and its value; the same as ``unpivot``."""
        return self.unpivot(ids, values, variable_name, value_name)

    def monotonically_increasing_id(self, column_name: str = "id") -> Self:
        """Number the rows from 0, in input order, in a new first column.

        >>> ps.from_pydict({"a": ["x", "y"]}).monotonically_increasing_id("n").to_pydict()
        {'n': [0, 1], 'a': ['x', 'y']}
        """
        return self._with(nodes.MonotonicId(self._plan, checked_name(column_name)))

    def __getitem__(self, key: Any) -> Any:
        """Return a column as an expression; or with a list of names a narrower DataFrame.

        >>> df = ps.from_pydict({"a": [1], "b": [2]})
        >>> df.select(df["a"] + 1).to_pydict(), df[["b"]].columns
        ({'a': [2]}, ['b'])
        """
        if isinstance(key, list):
            return self.select(*key)
        if isinstance(key, Expression):
            raise InvalidArgumentError(f"df[...] takes the name of a column; use df.where({key!r}) to keep rows")
        if isinstance(key, int | slice) and not isinstance(key, bool):
            shown = key if isinstance(key, int) else _slice_text(key)
            raise InvalidArgumentError(
                f"df[{shown}]: rows have no numbers before the query runs. Use df.take(n) or df.limit(n).to_pylist() "
                'for the first rows, df.offset(m).limit(n) for later ones, or df["name"] for a column'
            )
        if isinstance(key, tuple):
            raise InvalidArgumentError(f"df[...] takes a list of columns: df[{list(key)!r}]")
        if key != "*":
            check_columns(self._plan.schema, (checked_name(key),), "df[...]")
        return col(key)

    def __contains__(self, name: object) -> bool:
        """Return True if there is a column of this name.

        >>> "id" in ps.range(1)
        True
        """
        return name in self.columns


def to_node(column: ColumnInput) -> Expr:
    if isinstance(column, Expression):
        return column._node
    if isinstance(column, str):
        return col(column)._node
    raise InvalidArgumentError(f"A column is a name or an expression; got {column!r} of type {type(column).__name__}")


def named_node(name: str, value: Any) -> Expr:
    """Return a value or an expression as a column with a name. An unnest stays as it is, because its fields name the
    columns."""
    if isinstance(value, str):
        raise InvalidArgumentError(
            f"Column {checked_name(name)!r} is given the text {value!r}; write ps.col({value!r}) for that column, "
            f"or ps.lit({value!r}) for the text itself"
        )
    if callable(value) and not isinstance(value, Expression):
        raise InvalidArgumentError(
            f"Column {checked_name(name)!r} is given a function, {shortened(repr(value))}. Call a function made with "
            f"@ps.func on columns: with_column({name!r}, f(ps.col('x'))); or use map for a function of whole rows"
        )
    node = lit(value)._node
    return node if isinstance(node, Unnest) else Alias(node, checked_name(name))


def checked_mapping(verb: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"{verb} takes a dict by column name; got {given!r} of type {type(given).__name__}")
    return given


def checked_count(what: str, number: Any) -> int:
    """Return a number of rows or batches as an int; NumPy integers are accepted."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < 0:
        raise InvalidArgumentError(f"{what} needs a whole number, 0 or more; got {number!r}")
    return operator.index(number)


def _slice_text(key: slice) -> str:
    bounds = (key.start, key.stop) if key.step is None else (key.start, key.stop, key.step)
    return ":".join("" if each is None else str(each) for each in bounds)


def checked_batch_size(size: Any) -> int | None:
    """Return the rows of a reader's batches, or None for batches as the query makes them."""
    if size is None or (hasattr(size, "__index__") and not isinstance(size, bool) and size >= 1):
        return None if size is None else operator.index(size)
    raise InvalidArgumentError(
        f"batch_size must be a whole number of at least 1, or None for batches as the query makes them; got {size!r}"
    )
