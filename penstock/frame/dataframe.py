"""``DataFrame``: a lazy table. Each verb builds one plan node; ``collect``, ``show``, ``write_*`` and others run it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from penstock.errors import InvalidArgumentError
from penstock.frame.aggregate import AggregateVerbs
from penstock.frame.columns import ColumnVerbs
from penstock.frame.other_names import attribute_error
from penstock.frame.relational import RelationalVerbs
from penstock.frame.reshape import ReshapeVerbs
from penstock.frame.results import SHOWN_ROWS, ResultVerbs
from penstock.frame.rows import RowVerbs
from penstock.frame.semantic import SemanticVerbs
from penstock.frame.similarity import SimilarityVerbs
from penstock.frame.write import WriteVerbs
from penstock.observe.printable import terminal_width
from penstock.plan.nodes import Plan
from penstock.udf.options import refusing_unknown

if TYPE_CHECKING:
    from penstock.estimates.estimate import CostEstimate


class DataFrame(
    SemanticVerbs,
    ColumnVerbs,
    RowVerbs,
    RelationalVerbs,
    AggregateVerbs,
    ReshapeVerbs,
    SimilarityVerbs,
    ResultVerbs,
    WriteVerbs,
):
    """A lazy table. Made by ``read_*`` and ``from_*``; nothing runs until its rows are needed.

    >>> df = ps.from_pydict({"a": [1, 2, 3]})
    >>> df.where(ps.col("a") > 1).with_column("b", ps.col("a") * 10).to_pydict()
    {'a': [2, 3], 'b': [20, 30]}
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # libraries look for their own protocols
                raise AttributeError(f"DataFrame has no attribute {name!r}.")
            raise attribute_error(name, dir(self), () if self._schema is None else self._schema.names)

    def pipe(self, function: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> DataFrame:
        """Apply a function of a DataFrame, so that your own steps read in order.

        >>> ps.range(3).pipe(lambda df, n: df.limit(n), 1).to_pydict()
        {'id': [0]}
        """
        result = function(self, *args, **kwargs)
        if not isinstance(result, DataFrame):
            raise InvalidArgumentError(f"pipe needs a function that returns a DataFrame; got {type(result).__name__}")
        return result

    def transform(self, function: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> DataFrame:
        """Apply a function of a DataFrame; the same as ``pipe``."""
        return self.pipe(function, *args, **kwargs)

    def explain(self, analyze: bool = False, *, file: TextIO | None = None) -> None:
        """Print the plan as you wrote it, the optimized plan, and the stages it runs in. ``file`` replaces standard
        output.

        With ``analyze`` the query runs, its rows are dropped, and the stats of each stage are added, even if it fails.
        To get the text, pass ``io.StringIO()``:

        >>> import io
        >>> text = io.StringIO()
        >>> ps.range(3).explain(file=text)
        >>> text.getvalue().splitlines()[:2]
        ['== Plan ==', 'Scan range(0, 3)']
        """
        from penstock.plan.explain import explain_query

        stream = file or sys.stdout
        stream.write(f"{explain_query(self._plan, terminal_width(stream))}\n")
        if analyze:
            try:
                for _ in self._batches():
                    pass
            finally:
                stream.write(f"\n== Run ==\n{self.stats().text(terminal_width(stream))}\n")

    def estimate_cost(self, sample: int = 20) -> CostEstimate:
        """Run the query on a sample of its rows, write nothing, and project tokens, dollars and time to all of them.

        The sample is spread over all rows if their number is known or small, and is the same each time. Its answers
        are cached if there is a ``cache_dir``, so that they are not paid for again. See ``docs/guides/costs.md``.

        >>> df = ps.from_pydict({"q": ["Tell me more"] * 1000}).select(ps.prompt(ps.col("q"), model="gpt-5-mini"))
        >>> cost = df.estimate_cost()
        >>> cost.sampled_rows, cost.calls, cost.dollars_low <= cost.dollars <= cost.dollars_high
        (20, 1000.0, True)
        """
        from penstock.estimates.plan_cost import plan_cost

        return plan_cost(self._plan, sample)

    def plan_cost(self, sample: int = 20) -> CostEstimate:
        """Estimate the cost of the query; the same as ``estimate_cost``."""
        return self.estimate_cost(sample)

    @refusing_unknown("show")
    def show(self, n: int = SHOWN_ROWS, *, format: str = "default", max_width: int | None = None) -> None:
        """Print the first ``n`` rows as an aligned table; in a notebook, as HTML.

        On a terminal the columns share its width. No column is wider than ``max_width``, by default 30 where there is
        no terminal.
        """
        from penstock.frame import display

        display.check_format(format)
        table = self._reporting_here(self.limit(n)).to_arrow()
        total = table.num_rows if table.num_rows < n else None
        display.show(table, self._schema_of(table), total_rows=total, max_width=max_width, format=format)

    def __repr__(self) -> str:
        from penstock.frame import display

        if self._preview is not None:
            schema, width = self._schema_of(self._preview), terminal_width(sys.stdout)
            return display.render_text(self._preview, schema, total_rows=self._num_rows, terminal_width=width)
        if self._schema is None:
            return f"DataFrame (columns known once it runs)\n{_explained(self._plan)}"
        return f"{self._schema!r}\n(not run yet: call show() or collect())"

    def _repr_html_(self) -> str:
        from penstock.frame import display

        if self._preview is not None:
            return display.render_html(self._preview, self._schema_of(self._preview), total_rows=self._num_rows)
        if self._schema is None:
            return f"<pre>{_explained(self._plan)}</pre>"
        return self._schema._repr_html_() + "<small>(not run yet: call show() or collect())</small>"


def _explained(plan: Plan) -> str:
    from penstock.plan.explain import explain

    return explain(plan)
