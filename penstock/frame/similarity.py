"""Verbs on similar rows: the nearest rows by their vectors, and one row of each group of near duplicates."""

from __future__ import annotations

from typing import Any, Self, get_args

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.column import Expression
from penstock.frame.columns import ColumnInput, to_node
from penstock.frame.lazy_table import LazyTable
from penstock.frame.relational import plan_of, related, with_computed, without
from penstock.plan import nodes
from penstock.plan.pair_relations import Keys, NearestMaker
from penstock.plan.similarity import DropNear, DropSimilar, Metric


class SimilarityVerbs(LazyTable):
    def nearest(
        self,
        queries: LazyTable,
        on: ColumnInput,
        k: int = 10,
        metric: Metric = "cosine",
        *,
        query_on: ColumnInput | None = None,
    ) -> Self:
        """Find the ``k`` rows whose vectors are nearest to the vector of each row of ``queries``.

        The result has a row for each query and neighbour: the columns of the neighbour; the columns of the query, with
        the prefix ``right.`` where the neighbour has the name too, as in ``join``; the ``distance``; and the ``rank``,
        which is 1 for the nearest. Queries come in their order, and neighbours by rank. With ``metric="dot"`` the
        product is in ``score`` instead of ``distance``, and the largest is the nearest.

        ``on`` is the column of vectors on both sides; ``query_on`` names another one for the queries. A row without a
        vector, or with a NaN in it, is no neighbour and has none, like a zero vector for ``cosine``. The search is
        exact: it compares every row with every query. The queries and their neighbours are held in memory, while the
        rows of this DataFrame stream through. See ``docs/guides/relational.md``.

        >>> words = ps.from_pydict({"word": ["cat", "dog", "car"], "v": [[1.0, 0.1], [1.0, 0.3], [0.0, 1.0]]})
        >>> queries = ps.from_pydict({"query": ["kitten"], "v": [[1.0, 0.0]]})
        >>> words.nearest(queries, on="v", k=2).select("query", "word", "rank").to_pydict()
        {'query': ['kitten', 'kitten'], 'word': ['cat', 'dog'], 'rank': [1, 2]}
        """
        check_choice("nearest: metric", metric, get_args(Metric))
        if isinstance(k, bool) or not hasattr(k, "__index__") or k < 1:
            raise InvalidArgumentError(f"nearest needs k as a whole number of 1 or more; got {k!r}")
        left, left_on, left_extra = with_computed(self._plan, [to_node(on)], "nearest")
        query_key = to_node(on if query_on is None else query_on)
        right, right_on, right_extra = with_computed(plan_of(queries), [query_key], "nearest")
        maker = NearestMaker(Keys(left_on, left_extra), Keys(right_on, right_extra), int(k), metric)
        return self._with(related(left, right, maker, needs_order=True))

    def dedup_near(self, on: ColumnInput, threshold: float = 0.95) -> Self:
        """Drop each row whose vector has a cosine similarity of ``threshold`` or more to an earlier row that is kept.

        Rows stay in their order. Rows without a vector, with a zero vector or with a NaN in it are kept. Every row is
        compared with all kept rows before it, so the time grows with the square of their number. The vectors of
        the kept rows are held in memory; an error says so if they do not fit.

        >>> df = ps.from_pydict({"id": [1, 2, 3], "v": [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]})
        >>> df.dedup_near(on="v", threshold=0.9).to_pydict()["id"]
        [1, 3]
        """
        _check_threshold("dedup_near", threshold)
        plan, (name,), extra = with_computed(self._plan, [to_node(on)], "dedup_near")
        return self._with(without(nodes.Relate((plan,), DropNear(name, float(threshold))), extra))

    def dedup_minhash(
        self, on: ColumnInput, threshold: float = 0.8, *, num_hashes: int = 128, ngram_size: int = 5, seed: int = 1
    ) -> Self:
        """Keep the first row of each group of similar texts: texts that share many n-grams of words.

        Two texts are linked if the similarity that ``minhash`` estimates, the Jaccard index of their n-grams, is
        ``threshold`` or more; texts linked directly or through other texts are one group. Pairs to compare are found by
        locality sensitive hashing; see ``docs/guides/relational.md``. More ``num_hashes`` give better estimates. Rows
        stay in their order, and rows without a text are kept. Texts that differ in case or punctuation are different:
        pass ``normalize(...)`` of them.

        >>> texts = ["a lamp of blue glass", "a lamp of blue glass", "a red chair"]
        >>> ps.from_pydict({"text": texts}).dedup_minhash(on="text", ngram_size=2).to_pydict()["text"]
        ['a lamp of blue glass', 'a red chair']
        """
        from penstock.functions.hashing import minhash

        _check_threshold("dedup_minhash", threshold)
        text = Expression(to_node(on))
        signature = minhash(text, num_hashes=num_hashes, ngram_size=ngram_size, seed=seed)
        plan, (name,), extra = with_computed(self._plan, [to_node(signature)], "dedup_minhash")
        return self._with(without(nodes.Relate((plan,), DropSimilar(name, float(threshold))), extra))


def _check_threshold(verb: str, threshold: Any) -> None:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise InvalidArgumentError(f"{verb} needs a threshold above 0 and up to 1; got {threshold!r}")
