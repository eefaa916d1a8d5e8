"""Verbs that a language model carries out: answers about groups, the best rows for a question, and joins in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from penstock.ai.option_types import PromptOptions, SemanticJoinOptions, documented
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression, col, element, lit
from penstock.expr.templates import split_template, text_argument, with_doubled_braces, with_other_fields
from penstock.frame.aggregate import AggregateVerbs
from penstock.frame.columns import ColumnInput, ColumnVerbs
from penstock.frame.lazy_table import LazyTable
from penstock.frame.relational import Columns, RelationalVerbs, nodes_of
from penstock.frame.reshape import ReshapeVerbs
from penstock.frame.results import ResultVerbs
from penstock.frame.rows import RowVerbs
from penstock.frame.similarity import SimilarityVerbs
from penstock.udf.options import check_whole

if TYPE_CHECKING:
    from penstock.ai.provider import Provider

ANSWERS_TOGETHER = 32
NUM_LEVELS = 3
"""Levels that combine answers: 32 x 32 x 32 pieces of 32,000 tokens are a billion tokens for a group."""
NUM_ROUNDS = 3
"""Rounds of comparisons with pivots. Each keeps about a seventh of a group's rows, and at least one list."""
NUM_VOTES = 5
"""How often the model ranks the last rows, each time in another order."""
MAX_LABELS = 20
"""``semantic_join`` asks about every row of a table in memory with at most so many rows: one question for each."""

TEXT_OF_ROW = "a column or template: the text of a row that the model reads; by default all columns except by"


class SemanticVerbs(ColumnVerbs, RowVerbs, RelationalVerbs, AggregateVerbs, ReshapeVerbs, SimilarityVerbs, ResultVerbs):
    @documented(PromptOptions, text=TEXT_OF_ROW)
    def semantic_agg(
        self,
        question: str,
        by: Columns = (),
        *,
        text: Expression | str | None = None,
        context_tokens: int = 32_000,
        provider: str | Provider | None = None,
        model: str | None = None,
        **options: Unpack[PromptOptions],
    ) -> Self:
        """Answer a question about the rows of each group, or about all rows.

        The result has the columns ``by`` and ``answer``. The model reads the rows in pieces, and then combines its
        answers until there is one. The answer is null for a group without texts. With ``on_error="null"`` it is null
        for a group with a failed call too. See ``docs/guides/semantic.md``.

        >>> df = ps.from_pydict({"product": ["lamp", "lamp", "sofa"], "review": ["too dark", "it broke", "fine"]})
        >>> found = df.semantic_agg("What do customers complain about?", by="product", model="gpt-5-mini")
        >>> sorted(found.to_pydict()["product"])
        ['lamp', 'sofa']
        """
        from penstock import functions
        from penstock.frame import semantic_prompts as say
        from penstock.functions.aggregates import Window

        check_whole("semantic_agg", "context_tokens", context_tokens, 100)
        keys = [node.name for node in nodes_of(by)]
        chunks = functions.chunk_text(self._text_of_row("semantic_agg", text, keys), context_tokens)
        rows = self.select(*map(Expression, nodes_of(by)), __text=chunks).explode("__text")
        rows = rows.monotonically_increasing_id("__number")
        tokens = (functions.length_bytes(col("__text")) // 4 + 1).fill_null(0)
        before = Window().partition_by(*keys).order_by("__number").rows_between(float("-inf"), 0)
        rows = rows.with_column("__piece", tokens.cast("int64").sum().over(before) // context_tokens)
        for level in range(NUM_LEVELS + 1):
            parts = functions.list_agg(functions.to_struct(number=col("__number"), text=col("__text"))).alias("__parts")
            pieces = rows.groupby(*keys, "__piece").agg(parts)
            message = say.answers_message(col("__parts")) if level else say.rows_message(col("__parts"))
            asked = (say.ANSWERS if level else say.ROWS).format(question=question)
            answer = functions.prompt(message, system_message=asked, provider=provider, model=model, **options)
            parent = col("__piece") // ANSWERS_TOGETHER if level + 1 < NUM_LEVELS else lit(0)
            rows = pieces.select(
                *keys,
                __number=col("__piece"),
                __piece=parent,
                __text=functions.coalesce(answer, say.only_answer(col("__parts"))) if level else answer,
            )
        return rows.select(*keys, answer=col("__text"))

    @documented(PromptOptions, text=TEXT_OF_ROW)
    def semantic_top_k(
        self,
        k: int,
        question: str,
        by: Columns = (),
        *,
        text: Expression | str | None = None,
        provider: str | Provider | None = None,
        model: str | None = None,
        **options: Unpack[PromptOptions],
    ) -> Self:
        """Return the ``k`` rows of each group, or of all rows, that fit a question best, with their ``rank`` from 1.

        The model ranks lists of rows. Each list of a group also holds a few pivots: the same rows in every list, which
        make the lists comparable. Rows that too many pivots beat drop out. The model ranks the last rows several times.
        The order of a list is random, but depends on the texts alone. Rows without a text are left out. See
        ``docs/guides/semantic.md``.

        >>> df = ps.from_pydict({"review": ["fine", "Dark, and the switch broke in a week", "good"]})
        >>> df.semantic_top_k(1, "Which review is most useful to a buyer?", model="gpt-5-mini").columns
        ['review', 'rank']
        """
        from penstock import functions
        from penstock.frame import semantic_prompts as say
        from penstock.functions.aggregates import Window

        check_whole("semantic_top_k", "k", k, 1)
        given = nodes_of(by)
        text = self._text_of_row("semantic_top_k", text, [node.name for node in given])
        groups = {f"__key_{number}": Expression(node) for number, node in enumerate(given)} or {"__key": lit(0)}
        keys, group = list(groups), Window().partition_by(*groups)
        list_rows = max(say.LIST_ROWS, 2 * k)
        rows = self.select(**groups, __row=functions.to_struct(*map(col, self.columns)), __text=text)
        rows = rows.where(col("__text").not_null())
        item = functions.to_struct(number=col("__number"), text=col("__text"), row=col("__row"))
        part = functions.to_struct(number=element()["number"], text=element()["text"])
        parts = functions.list_map(col("__items"), part)

        def ask(message: Expression) -> Expression:
            asked = say.COMPARED.format(question=question)
            return functions.prompt(message, list[int], system_message=asked, provider=provider, model=model, **options)

        def in_random_order(rows: Self, seed: int) -> Self:
            rows = rows.with_column("__order", functions.hash(col("__text"), seed=seed))
            return rows.with_columns(
                __number=functions.row_number().over(group.order_by("__order", "__text")),
                __size=col("__order").count().over(group),
            )

        for seed in range(NUM_ROUNDS):
            lists = in_random_order(rows, seed).with_column("__list", (col("__number") - 1) // list_rows)
            lists = lists.groupby(*keys, "__list", "__size").agg(functions.list_agg(item).alias("__items"))
            lists = lists.with_column("__parts", parts).with_column("__first", say.pivots_of(col("__parts")))
            pivots = functions.first_value(col("__first")).over(group.order_by("__list"))
            lists = lists.with_column(
                "__pivots", (col("__list") > 0).if_else(pivots, functions.list_slice(pivots, 0, 0))
            )
            shown = (col("__parts"), col("__pivots"), seed)
            lists = lists.with_column("__answer", ask(say.list_message(*shown, col("__size") > list_rows)))
            lists = lists.with_column("__better", say.num_better(*shown, col("__answer")))
            rows = lists.select(*keys, "__items", "__better").explode("__items", "__better")
            rows = rows.with_column("__rank", functions.rank().over(group.order_by("__better")))
            rows = rows.where(col("__rank") <= list_rows)
            rows = rows.select(*keys, __row=col("__items")["row"], __text=col("__items")["text"])

        last = in_random_order(rows, NUM_ROUNDS).groupby(*keys).agg(functions.list_agg(item).alias("__items"))
        last = last.with_column("__parts", parts)
        votes = {f"__vote_{seed}": ask(say.list_message(col("__parts"), [], seed, True)) for seed in range(NUM_VOTES)}
        last = last.with_columns(votes).with_column("__place", say.mean_places(col("__parts"), *map(col, votes)))
        best: Self = last.select(*keys, "__items", "__place").explode("__items", "__place")
        best = best.where(col("__place").not_null()).with_column("__number", col("__items")["number"])
        best = best.with_column("rank", functions.row_number().over(group.order_by("__place", "__number")))
        best = best.where(col("rank") <= k).sort([*keys, "rank"])
        return best.select(functions.unnest(col("__items")["row"]), "rank")

    @documented(
        SemanticJoinOptions,
        statement="a template that is true or false of a pair of rows: {left.name} and {right.name} are columns",
        k="the number of rows of other that are checked for each row: the nearest ones",
    )
    def semantic_join(
        self,
        other: LazyTable,
        statement: str,
        k: int = 20,
        *,
        left_on: ColumnInput | None = None,
        right_on: ColumnInput | None = None,
        provider: str | Provider | None = None,
        model: str | None = None,
        **options: Unpack[SemanticJoinOptions],
    ) -> Self:
        """Join each row with the rows of ``other`` that make a statement true, such as ``"{left.a} cites {right.b}"``.

        Only the ``k`` rows of ``other`` that are nearest to a row can match it. ``nearest`` finds them by the vectors
        ``left_on`` and ``right_on``, and ``ask`` checks each pair. If ``other`` is a table in memory with at most 20
        rows, such as labels, ``ask`` checks all of them instead; a decision model does so in one request for each row.
        The result has the same columns as ``join`` gives, and its rows come in no particular order. See
        ``docs/guides/semantic.md``.

        >>> reviews = ps.from_pydict({"text": ["yes, the lamp broke", "no, all is fine"]})
        >>> topics = ps.from_pydict({"topic": ["quality"]})
        >>> reviews.semantic_join(topics, "{left.text} is about {right.topic}", model="gpt-6-luna").to_pydict()
        {'text': ['yes, the lamp broke'], 'topic': ['quality']}
        """
        from penstock import functions

        check_whole("semantic_join", "k", k, 1)
        if not isinstance(other, SemanticVerbs):
            raise InvalidArgumentError(f"The other side must be a DataFrame; got {type(other).__name__}")
        read = _columns_in(statement, {"left": self.columns, "right": other.columns})

        def ask(statement: str) -> Expression:
            return functions.ask(statement, provider=provider, model=model, **options)

        def prefixed(frame: Any, side: str, **vector: ColumnInput) -> Any:
            return frame.select(**{f"{side}.{name}": col(name) for name in frame.columns}, **vector)

        is_plain = (options.get("cheap"), left_on, right_on) == (None, None, None)
        if is_plain and other._is_in_memory and len(other) <= MAX_LABELS:
            pairs = _labelled(prefixed(self, "left"), prefixed(other, "right"), statement, ask)
        else:
            vectors = {
                side: functions.embed_text(_joined_text(read[side])) if on is None else on
                for side, on in {"left": left_on, "right": right_on}.items()
            }
            left = prefixed(self, "left", __left=vectors["left"])
            right = prefixed(other, "right", __right=vectors["right"])
            pairs = right.nearest(left, "__right", k, query_on="__left").where(ask(statement))
        found: Self = pairs.select(
            *(col(f"left.{name}").alias(name) for name in self.columns),
            *(col(f"right.{name}").alias(f"right.{name}" if name in self.columns else name) for name in other.columns),
        )
        return found

    def _text_of_row(self, verb: str, text: Any, keys: list[str]) -> Expression:
        """Return the text of a row that a model reads: a column, a template, or all columns except the keys."""
        if text is None:
            return _joined_text([name for name in self.columns if name not in keys])
        found: Expression = text_argument(verb, text, "reads the same text for every row")
        return found


def _joined_text(names: Sequence[str]) -> Expression:
    """Return one column as text, or several, each after its name; nulls are left out."""
    from penstock.functions.text import concat_ws

    if len(names) == 1:
        return col(names[0]).cast("string")
    return concat_ws("\n", *(lit(f"{name}: ") + col(name).cast("string") for name in names))


def _columns_in(statement: str, columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the columns that a statement about pairs reads on each side."""
    read: dict[str, list[str]] = {side: [] for side in columns}
    for field in split_template("semantic_join", statement)[1]:
        side, _, name = field.partition(".")
        if name not in columns.get(side, ()):
            known = [f"{side}.{name}" for side, names in columns.items() for name in names]
            raise InvalidArgumentError(
                f"semantic_join: {{{field}}} is no column; available: {', '.join(known)}.{did_you_mean(field, known)}"
            )
        read[side].append(name)
    for side, names in read.items():
        if not names:
            raise InvalidArgumentError(
                f"semantic_join: the statement needs a column of the {side} side, {{{side}.name}}"
            )
    return read


def _labelled(left: Any, labels: Any, statement: str, ask: Callable[[str], Expression]) -> Any:
    """Return the pairs of rows and labels that make a statement true. Ask in a column for each label first."""
    from penstock import functions

    answers: dict[str, Expression] = {}
    fields = split_template("semantic_join", statement)[1]
    labels = labels.drop_null(*(field for field in fields if field in labels.columns))
    for number, label in enumerate(labels.to_pylist()):
        texts = {each: with_doubled_braces(str(label[each])) if each in label else f"{{{each}}}" for each in fields}
        answers[f"__is_{number}"] = ask(with_other_fields("semantic_join", statement, texts.__getitem__))
    asked = left.with_columns(answers)
    numbers = [col(name).if_else(int(name.removeprefix("__is_")), None).cast("uint64") for name in answers]
    matches = asked.with_column("__label", functions.to_list(*numbers, lit(None).cast("uint64"))).explode("__label")
    return matches.join(labels.monotonically_increasing_id("__label"), on="__label")
