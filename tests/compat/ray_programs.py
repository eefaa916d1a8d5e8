"""One-line programs over ``ds``, ``empty``, ``folder`` and ``data``, which is ``ray.data`` of Ray or of the adapter.

Results are plain values; rows of unordered verbs are sorted by the program itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROWS = [{"id": i, "g": i % 3, "x": None if i == 4 else i / 2, "s": f"Word {i}"} for i in range(8)]
_ROWS = ((1, "a", 1.0), (2, "b", None), (2, "c", 3.0), (None, "n", 4.0), (5, "e", 5.0))
LEFT = [{"id": i, "v": v, "x": x} for i, v, x in _ROWS]
RIGHT = [{"id": i, "v": v, "y": y} for i, v, y in ((2, "B", 10), (2, "C", 20), (3, "D", 30), (None, "N", 40))]
RENAMED = [{"key": row["id"], "w": row["v"], "y": row["y"]} for row in RIGHT]
JOINS = ("inner", "left_outer", "right_outer", "full_outer", "left_semi", "right_semi", "left_anti", "right_anti")
SUFFIXES = ("right_suffix='_r'", "left_suffix='_l', right_suffix='_r'", "left_suffix='_l'")
PROGRAMS = [
    "ds.count()",
    "ds.columns()",
    "ds.take(limit=2)",
    "ds.take_all(limit=100)",
    "ds.limit(limit=3).take_all()",
    "data.range(3).take_all()",
    "data.range_tensor(2, shape=(2,)).take_batch()['data'].tolist()",
    "data.from_items([1, 2]).take_all()",
    "ds.filter(fn=lambda row: row['id'] > 5).take_all()",
    "ds.filter(expr='id > 5').take_all()",
    "ds.filter(expr='id > 2 and (g == 1 or g == 0)').take_all()",
    "ds.filter(expr=X.col('x').is_not_null() & X.col('g').not_in([0])).take_all()",
    "ds.with_column('y', X.col('id') * 2 + 1).take(2)",
    "ds.with_column('y', X.col('s').str.upper()).take(1)",
    "ds.with_column('y', X.col('s').str.starts_with('Word 1')).take(2)",
    "ds.with_column('y', X.lit(7)).select_columns(['y']).take(1)",
    "ds.map(lambda row: {'z': row['id'] + 1}).take(2)",
    "ds.flat_map(lambda row: [{'z': row['id']}] * 2).take(3)",
    "ds.map_batches(lambda b: {'z': b['id'] * 2}, batch_size=3).take_all()",
    "ds.map_batches(lambda t: t.select(['g']), batch_format='pyarrow').take(2)",
    "ds.map_batches(lambda df: df[['id']], batch_format='pandas', zero_copy_batch=True).take(2)",
    "ds.add_column('z', lambda df: df['id'] + 1).select_columns('z').take(2)",
    "ds.drop_columns(['s', 'x']).take(1)",
    "ds.rename_columns(['a', 'b', 'c', 'd']).columns()",
    "ds.rename_columns({'id': 'key'}).columns()",
    "ds.select_columns(['g', 'id']).take(1)",
    "ds.sort('id', descending=True).take(1)",
    "ds.sort(['g', 'id'], descending=[True, False]).take(3)",
    "ds.sort('x', descending=True).select_columns('x').take_all()",
    "ds.with_column('y', (X.col('x') - 2).trunc()).select_columns('y').take_all()",
    "ds.with_column('y', (X.col('x') - 2).round()).select_columns('y').take_all()",
    "ds.select_columns('g').union(ds.select_columns('id')).count()",
    "ds.union(ds).count()",
    "ds.union(ds.limit(2), ds.limit(1)).count()",
    "ds.zip(data.from_items([{'z': i} for i in range(8)])).take(1)",
    *(f"by_text(left.join(renamed, {kind!r}, 1, on=('id',), right_on=('key',)))" for kind in JOINS),
    *(f"by_text(left.join(right, 'inner', 1, on=('id',), {suffixes}))" for suffixes in SUFFIXES),
    "by_text(left.join(right, 'full_outer', 1, on=('id',), left_suffix='_l', right_suffix='_r'))",
    "ds.sum('id')",
    "ds.sum('x')",
    "ds.min('x')",
    "ds.max(['id', 'g'])",
    "ds.mean('x')",
    "round(ds.std('id'), 9)",
    "sorted(ds.unique('g'))",
    "ds.aggregate(A.Count(), A.Sum('id'), A.Max('x'), A.AbsMax('id'))",
    "ds.aggregate(A.CountDistinct('g'), A.MissingValuePercentage('x'), A.ZeroPercentage('g'))",
    "ds.groupby('g').count().sort('g').take_all()",
    "ds.groupby('g').sum('id').sort('g').take_all()",
    "ds.groupby('g').mean(['id', 'x']).sort('g').take_all()",
    "ds.groupby('g').aggregate(A.Min('x'), A.Max('x', alias_name='top')).sort('g').take_all()",
    "sorted(r['n'] for r in ds.groupby('g').map_groups(lambda b: {'n': [len(b['id'])]}).take_all())",
    "[part.count() for part in ds.split_at_indices([2, 5])]",
    "[part.count() for part in ds.split_proportionately([0.25, 0.5])]",
    "[part.count() for part in ds.split(4, equal=True)]",
    "[part.take_all() for part in ds.train_test_split(0.25)]",
    "[len(b['id']) for b in ds.iter_batches(batch_size=3)]",
    "[len(b['id']) for b in ds.iter_batches(batch_size=3, drop_last=True, prefetch_batches=2)]",
    "sorted(i for b in ds.iter_batches(local_shuffle_buffer_size=4, local_shuffle_seed=1) for i in b['id'].tolist())",
    "sorted(r['id'] for r in ds.random_shuffle(seed=1).take_all())",
    "ds.repartition(3).count()",
    "ds.to_pandas(limit=100)['id'].tolist()",
    "[ds.write_parquet(folder + '/twice') for _ in range(2)]",
    "data.read_parquet(folder + '/twice').count()",
    "[ds.write_csv(folder + '/csv'), data.read_csv(paths=folder + '/csv', override_num_blocks=2).sort('id').take(1)]",
    "[ds.write_parquet(folder + '/hive', partition_cols=['g']), sorted(data.read_parquet(folder + '/hive').columns())]",
    "data.read_parquet(folder + '/twice', columns=['id'], concurrency=1).columns()",
    "empty.count()",
    "empty.take_all()",
    "empty.sum('id')",
]  # fmt: skip


def results(data: Any, expressions: Any, aggregate: Any, folder: Path) -> dict[str, Any]:
    """Run every program and return its result, or the class of its error."""
    ds = data.from_items(ROWS, override_num_blocks=1)  # one order of rows
    names = {
        "data": data, "X": expressions, "A": aggregate, "folder": str(folder), "ds": ds,
        "empty": ds.filter(fn=lambda row: row["id"] > 99), "by_text": by_text,
        "left": data.from_items(LEFT, override_num_blocks=1), "right": data.from_items(RIGHT, override_num_blocks=1),
        "renamed": data.from_items(RENAMED, override_num_blocks=1),
    }  # fmt: skip
    found = {}
    for text in PROGRAMS:
        found[text] = eval(text, names)
    return found


def by_text(dataset: Any) -> list[dict[str, Any]]:
    """Return the rows of a verb that promises no order."""
    return sorted(dataset.take_all(), key=lambda row: str(sorted(row.items())))
