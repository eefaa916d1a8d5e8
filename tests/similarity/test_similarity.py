"""nearest, dedup_near and dedup_minhash against brute force, and their rules for null, zero and unequal vectors."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.functions import cosine_distance, dot_product, euclidean_distance, to_list
from penstock.plan.similarity import DropNear, Metric
from penstock.similarity import best_rows, near_duplicates, nearest
from penstock.similarity.best_rows import BestRows, TorchBestRows
from penstock.similarity.near_duplicates import DropNearHandler
from penstock.similarity.similar_texts import link

MEASURES: dict[str, Any] = {"cosine": cosine_distance, "dot": dot_product, "euclidean": euclidean_distance}
Numbers = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the small tables of these tests into many blocks."""
    monkeypatch.setattr(best_rows, "QUERY_ROWS", 3)
    monkeypatch.setattr(best_rows, "BLOCK_ROWS", 16)
    monkeypatch.setattr(nearest, "OUTPUT_NBYTES", 1000)
    monkeypatch.setattr(near_duplicates, "ROWS_AT_A_TIME", 16)
    monkeypatch.setattr(near_duplicates, "KEPT_BLOCK_ROWS", 8)


def frame(vectors: list[Any], dtype: pa.DataType | None = None, num_batches: int = 3) -> ps.DataFrame:
    """Return rows with an ``id`` and a vector, in several batches."""
    table = pa.table({"id": pa.array(range(len(vectors)), pa.int64()), "v": pa.array(vectors, dtype)})
    return ps.from_arrow(table).repartition(num_batches)


def random_vectors(seed: int, num_rows: int, *, size: int = 4) -> list[Any]:
    """Return vectors of small whole numbers, so that many are equal or zero, with nulls."""
    rng = np.random.default_rng(seed)
    return [None if rng.random() < 0.1 else rng.integers(-2, 3, size).tolist() for _ in range(num_rows)]


def expected_rows(rows: list[Any], queries: list[Any], k: int, metric: str) -> list[tuple[int, float]]:
    """Return the query and the distance, or minus the score, of the nearest rows, by the expressions of Penstock."""
    pairs = ps.from_pydict({"v": rows, "id": range(len(rows))}).join(
        ps.from_pydict({"q": queries, "query": range(len(queries))}), how="cross"
    )
    cast = [ps.col(name).cast(ps.DataType.list(ps.DataType.float64())) for name in ("v", "q")]
    measured = pairs.with_column("m", MEASURES[metric](*cast)).select("query", "m").to_pylist()
    sign = -1 if metric == "dot" else 1
    found = sorted((row["query"], sign * row["m"]) for row in measured if row["m"] is not None and row["m"] == row["m"])
    seen = [query for query, _ in found]
    return [pair for number, pair in enumerate(found) if number - seen.index(pair[0]) < k]


@pytest.mark.parametrize("metric", get_args(Metric))
@pytest.mark.parametrize(
    ("seed", "num_rows", "num_queries", "k"), [(1, 100, 7, 5), (2, 60, 2, 20), (3, 5, 4, 9), (4, 40, 1, 1)]
)
def test_nearest_agrees_with_every_pair(metric: Metric, seed: int, num_rows: int, num_queries: int, k: int) -> None:
    rows, queries = random_vectors(seed, num_rows), random_vectors(-seed % 100, num_queries)
    df = frame(rows, pa.list_(pa.int64())).nearest(frame(queries, pa.list_(pa.int8())), on="v", k=k, metric=metric)
    measure = "score" if metric == "dot" else "distance"
    assert df.columns == ["id", "v", "right.id", "right.v", measure, "rank"]
    found = df.to_pydict()
    sign = -1 if metric == "dot" else 1
    wanted = expected_rows(rows, queries, k, metric)
    assert found["right.id"] == [query for query, _ in wanted]
    np.testing.assert_allclose(sign * np.array(found[measure]), [value for _, value in wanted], atol=1e-12)
    assert found["v"] == [rows[position] for position in found["id"]]
    assert found["right.v"] == [queries[position] for position in found["right.id"]]
    assert found["rank"] == [found["right.id"][:at].count(query) + 1 for at, query in enumerate(found["right.id"])]


@pytest.mark.parametrize("metric", get_args(Metric))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_finds_the_same_rows_as_numpy(metric: Metric, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    vectors, queries = rng.standard_normal((200, 8)).astype(dtype), rng.standard_normal((10, 8)).astype(dtype)
    vectors[3] = 0
    vectors[50, 2] = np.nan
    both: list[Any] = [BestRows(queries, 7, metric), TorchBestRows(queries, 7, metric, "cpu")]
    for best in both:
        for start in range(0, 200, 64):
            best.add(vectors[start : start + 64], np.arange(start, min(start + 64, 200)))
    assert both[0].positions.tolist() == both[1].positions.tolist()
    assert type(best_rows.best_rows(queries, 7, metric, has_gpu=True)) is BestRows  # torch sees no GPU


def test_equally_near_rows_come_in_their_order_and_a_small_distance_far_from_the_origin_is_seen() -> None:
    far = [[1e4, 1e4 + step / 64] for step in (9, 2, 1, 2, 30, 1)]
    df = frame(far, pa.list_(pa.float32(), 2)).nearest(
        frame([[1e4, 1e4]], pa.list_(pa.float32(), 2)), on="v", k=4, metric="euclidean"
    )
    assert df.select("id", "distance").to_pydict() == {"id": [2, 5, 1, 3], "distance": [1 / 64, 1 / 64, 2 / 64, 2 / 64]}


def test_embeddings_other_columns_and_names_pass_through() -> None:
    embedding = ps.DataType.embedding(ps.DataType.float32(), 2)
    df = ps.from_pydict({"name": ["a", "b"], "e": [[1, 0], [0, 1]], "image": [b"1", None]})
    df = df.with_column("e", ps.col("e").cast(embedding))
    queries = ps.from_pydict({"name": ["q"], "vector": [[0.0, 2.0]]})
    found = df.nearest(queries, on="e", query_on="vector", k=1)
    assert found.schema()["e"].dtype == embedding
    assert found.to_pylist() == [
        {"name": "b", "e": pytest.approx([0, 1]), "image": None, "right.name": "q", "vector": [0.0, 2.0],
         "distance": 0.0, "rank": 1}
    ]  # fmt: skip
    computed = df.nearest(queries, on=ps.col("e").l2_normalize(), query_on="vector", k=2)
    assert computed.columns == found.columns
    assert computed.select("name").to_pydict() == {"name": ["b", "a"]}


@pytest.mark.parametrize(("num_rows", "num_queries"), [(0, 2), (2, 0), (0, 0)])
def test_an_empty_side_gives_no_rows(num_rows: int, num_queries: int) -> None:
    dtype = pa.list_(pa.float32(), 2)
    df = frame([[1.0, 2.0]] * num_rows, dtype, 1).nearest(frame([[1.0, 2.0]] * num_queries, dtype, 1), on="v")
    assert df.to_pydict() == {"id": [], "v": [], "right.id": [], "right.v": [], "distance": [], "rank": []}


def test_a_filter_on_queries_runs_before_and_one_on_neighbours_after() -> None:
    rows, queries = frame(random_vectors(1, 50)), frame(random_vectors(2, 5))
    found = rows.nearest(queries, on="v", k=3)
    everything = found.to_pylist()
    for name in ("right.id", "id"):
        assert found.where(ps.col(name) < 3).to_pylist() == [row for row in everything if row[name] < 3]


V2, V3 = pa.list_(pa.float32(), 2), pa.list_(pa.float32(), 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda df: df.nearest(frame([[1, 2, 3]], V3), on="v"), TypeMismatchError, "have 2 numbers, .* have 3"),
        (lambda df: df.nearest(df, on="x"), ColumnNotFoundError, "'x' not found"),
        (lambda df: df.nearest(df, on="v", query_on="x"), ColumnNotFoundError, "'x' not found"),
        (lambda df: df.nearest(df, on="id"), TypeMismatchError, "column 'id': expected an embedding"),
        (lambda df: df.nearest(df, on="v", query_on="id"), TypeMismatchError, "the queries: column 'id': expected"),
        (lambda df: df.nearest(df, on="v", k=0), InvalidArgumentError, "whole number of 1 or more; got 0"),
        (lambda df: df.nearest(df, on="v", k=True), InvalidArgumentError, "got True"),
        (lambda df: df.nearest(df, on="v", metric="l2"), InvalidArgumentError, "metric='l2' is not known"),
        (lambda df: df.nearest([[1, 2]], on="v"), InvalidArgumentError, "must be a DataFrame; got list"),
        (lambda df: df.with_column("rank", 1).nearest(df, on="v"), InvalidArgumentError, "adds the column 'rank'"),
        (lambda df: df.dedup_near(on="id"), TypeMismatchError, "dedup_near: column 'id': expected an embedding"),
        (lambda df: df.dedup_near(on="v", threshold=95), InvalidArgumentError, "above 0 and up to 1; got 95"),
        (lambda df: df.dedup_minhash(on="id"), TypeMismatchError, "expected a string"),
        (lambda df: df.dedup_minhash(on="t", threshold=0), InvalidArgumentError, "above 0 and up to 1; got 0"),
    ],
)  # fmt: skip
def test_mistakes_are_named_when_the_query_is_built(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(frame([[1, 2]], V2).with_column("t", ps.lit("text")))


@pytest.mark.parametrize(
    ("rows", "queries", "message"),
    [
        ([[1.0, 2.0], [1.0]], [[1.0, 2.0]], "column 'v' has a vector of 1 numbers, but another vector has 2"),
        ([[1.0, 2.0]], [[1.0, 2.0], [1.0]], "column 'v' of the queries has a vector of 1 numbers"),
    ],
)
def test_lists_of_unequal_length_are_named_when_the_query_runs(rows: Any, queries: Any, message: str) -> None:
    with pytest.raises(ComputeError, match=message):
        frame(rows).nearest(frame(queries), on="v").collect()


def test_queries_that_do_not_fit_are_refused() -> None:
    queries = frame([[1.0] * 1000] * 1000, num_batches=1)
    message = r"the queries and 10 rows for each, which take \d MiB; .* is 4 MiB"
    with ps.config(memory_limit=8 * 2**20), pytest.raises(ComputeError, match=message):
        queries.nearest(queries, on="v").collect()


def test_rows_that_are_no_longer_among_the_nearest_are_dropped() -> None:
    df = ps.range(2000).into_batches(5).with_column("v", to_list(ps.col("id"), ps.lit(1)))
    df = df.with_column("payload", ps.lit("x" * 20_000))
    queries = ps.from_pydict({"v": [[1e6, 1.0]]})
    with ps.config(memory_limit=8 * 2**20):
        found = df.nearest(queries, on="v", k=3, metric="euclidean").to_pydict()
    assert found["id"] == [1999, 1998, 1997]


# --- near duplicates ---


def kept_by_hand(rows: list[Any], threshold: float) -> list[int]:
    kept: list[int] = []
    for position, row in enumerate(rows):
        if row is None or not any(row):
            kept.append(position)
            continue
        earlier = [np.array(rows[at]) for at in kept if rows[at] is not None and any(rows[at])]
        vector = np.array(row)
        if not any(v @ vector / np.sqrt((v @ v) * (vector @ vector)) > threshold for v in earlier):
            kept.append(position)
    return kept


@pytest.mark.parametrize("threshold", [0.55, 0.81, 0.999])
@pytest.mark.parametrize(("seed", "num_rows"), [(1, 150), (2, 40), (3, 1)])
def test_dedup_near_keeps_the_rows_that_are_not_near_an_earlier_kept_one(
    threshold: float, seed: int, num_rows: int
) -> None:
    rows = random_vectors(seed, num_rows, size=3)
    df = frame(rows, pa.list_(pa.float32(), 3)).dedup_near(on="v", threshold=threshold)
    assert df.columns == ["id", "v"]
    assert df.to_pydict()["id"] == kept_by_hand(rows, threshold)


def test_equal_vectors_are_duplicates_at_a_threshold_of_one() -> None:
    assert [handler.process(part, 0).num_rows for handler in [near_handler(10**6)] for part in tripled()] == [50, 10]


def test_dedup_near_refuses_more_kept_vectors_than_its_memory_holds() -> None:
    handler = near_handler(600)
    with pytest.raises(ComputeError, match=r"dedup_near holds the vectors .* dedup_minhash before, or raise"):
        handler.process(tripled()[0], 0)


def near_handler(memory_bytes: int) -> DropNearHandler:
    return DropNearHandler(DropNear("v", 1.0), memory_bytes, lambda: False)


def tripled() -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return 60 vectors three times, in two batches."""
    vectors = np.random.default_rng(0).standard_normal((60, 16)).astype(np.float32)
    batch = pa.record_batch({"v": pa.FixedSizeListArray.from_arrays(pa.array(np.tile(vectors, (3, 1)).ravel()), 16)})
    return batch.slice(0, 50), batch.slice(50)


# --- similar texts ---


def words(rng: Any, num_words: int) -> list[str]:
    return [f"w{number}" for number in rng.integers(0, 5000, num_words)]


def test_dedup_minhash_keeps_the_first_of_each_group_in_order() -> None:
    rng = np.random.default_rng(7)
    texts, groups = [], []
    for group in range(60):
        text = words(rng, 100)
        for copy in range(int(rng.integers(1, 5))):
            changed = list(text)
            if copy:
                changed[int(rng.integers(0, 100))] = "changed"
            texts.append(" ".join(changed))
            groups.append(group)
    order = rng.permutation(len(texts))
    df = ps.from_pydict({"g": [groups[at] for at in order], "t": [texts[at] for at in order]}).repartition(4)
    shuffled = [groups[at] for at in order]
    assert df.dedup_minhash(on="t", threshold=0.7, ngram_size=3).to_pydict()["g"] == list(dict.fromkeys(shuffled))


def test_dedup_minhash_links_texts_over_others_and_keeps_rows_without_a_text() -> None:
    base = [f"w{number}" for number in range(100)]
    chain = [" ".join(["x"] * shift + base[shift:]) for shift in (0, 30, 15)]  # the last one links the others
    df = ps.from_pydict({"n": range(6), "t": [*chain, None, None, chain[0]]})
    deduplicated = df.dedup_minhash(on="t", threshold=0.65, ngram_size=1, num_hashes=256)
    assert deduplicated.to_pydict()["n"] == [0, 3, 4]
    assert deduplicated.columns == ["n", "t"]
    assert df.where(ps.col("n") < 2).dedup_minhash(on="t", threshold=0.8, ngram_size=1).count_rows() == 2


@pytest.mark.parametrize("texts", [[], [None], [""], ["", ""]])
def test_dedup_minhash_of_few_rows(texts: list[Any]) -> None:
    df = ps.from_arrow(pa.table({"t": pa.array(texts, pa.string())}))
    assert df.dedup_minhash(on="t").to_pydict()["t"] == texts[:1]


def test_links_make_the_same_groups_as_a_search_of_the_graph() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 200, (2, 150))
    parents = np.arange(200)
    for start in range(0, 150, 40):
        link(parents, left[start : start + 40], right[start : start + 40])
    group = list(range(200))
    for a, b in zip(left, right, strict=True):
        group = [group[a] if each == group[b] else each for each in group]
    firsts = [group.index(each) for each in group]
    link(parents, left, right)
    assert [int(at) for at in _all_roots(parents)] == firsts


def _all_roots(parents: Numbers) -> Numbers:
    while (parents[parents] != parents).any():
        parents = parents[parents]
    return parents
