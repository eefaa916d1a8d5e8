"""``import penstock`` is quick, and its names load nothing that only some users need."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.architecture.test_layers import HEAVY


def run_python(code: str) -> str:
    """Return what a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_loads_no_heavy_package() -> None:
    code = """
import json, sys
from penstock import DataFrame, Series, col, from_pydict, func, read_parquet, set_runner_ray
first = sorted(sys.modules)
import penstock.runners.openers  # what a worker process loads
print(json.dumps([first, "asyncio" in sys.modules]))
"""
    first, has_worker_asyncio = json.loads(run_python(code))
    loaded = set(first)
    assert not has_worker_asyncio
    assert not loaded & {*HEAVY, "pyarrow.compute", "asyncio"}
    later = (
        "functions", "frame.read.media", "frame.read.tables", "frame.sql", "io", "events.events", "plan.lower",
        "plan.optimizer",
    )  # fmt: skip
    assert not loaded & {f"penstock.{module}" for module in later}


def test_a_query_and_a_write_load_no_pandas(tmp_path: Path) -> None:
    """Importing pandas takes longer than a small query."""
    code = f"""
import sys, penstock as ps
ps.set_config(cache_dir={str(tmp_path / "cache")!r})
add = ps.func(lambda number: number + 1, return_dtype=ps.DataType.int64(), cache=True)
df = ps.from_pydict({{"a": list(range(20_000)), "t": [f"{{number:0100d}}" for number in range(20_000)]}})
for _ in ("computed", "cached"):
    df.with_column("b", add(ps.col("a"))).sort("a", desc=True).write_parquet({str(tmp_path / "o")!r}, mode="overwrite")
print("pandas" in sys.modules)
"""
    assert run_python(code).strip() == "False"


ORDINARY = {
    "filter": "files.where(col('v') > 0.5).to_pydict()",
    "filter by text, and by one of several": "files.where((col('s') == 'b') & col('k').is_in([1, 2])).to_pydict()",
    "filter by date": "files.where(col('d') >= datetime.date(2020, 1, 1)).count_rows()",
    "partitions": "ps.read_parquet(folder + '/parts', hive_partitioning=True).where(col('part') == 1).to_pydict()",
    "group": "files.groupby((col('k') % 2).alias('m')).agg(col('v').mean(), col('k').sum()).sort('m').to_pydict()",
    "join": "files.join(ps.from_pydict({'k': [1, None], 'n': ['x', None]}), on='k', how='left').sort('k').show()",
    "window": "files.with_column('r', col('v').sum().over(ps.Window().partition_by('s'))).to_pydict()",
    "if_else": "files.select((col('k') > 1).if_else(col('v'), 0.0).alias('x'), col('k').fill_null(0)).to_arrow()",
    "rows": "ps.from_pydict({'a': [True, None], 'b': [{'x': 1}, {'x': None}]}).where(col('a')).to_pylist()",
    "text": "files.select(col('s').upper(), col('s').contains('b').alias('c')).to_pydict()",
    "format": "files.select(ps.format('{}: {}', 's', 'k').alias('f')).to_pydict()",
    "explode and unpivot": "ps.from_pydict({'l': [[1, 2], [3]]}).explode('l').unpivot([], ['l']).to_pydict()",
    "sql": "ps.sql('select s, max(v) as v from files where k > 1 group by s', files=files).to_pydict()",
    "batches": "files.select('k', 'v', 's').map_batches(lambda b: {'k': b['k'] * 2, 's': b['s']}).to_pydict()",
    "csv": "[files.write_csv(folder + '/c'), ps.read_csv(folder + '/c').where(col('k') > 1).to_pydict()]",
    "json": "[files.write_json(folder + '/j'), ps.read_json(folder + '/j').where(col('k') > 1).to_pydict()]",
}


def test_ordinary_queries_load_no_pandas(tmp_path: Path) -> None:
    dates = [datetime.date(2019 + number, 1, 1) for number in range(3)]
    table = pa.table({"k": [1, 2, None], "v": [0.25, 0.75, None], "s": ["a", "b", None], "d": dates})
    for path in ("t.parquet", "parts/part=1/t.parquet", "parts/part=2/t.parquet"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / path)
    code = f"""
import datetime, sys, penstock as ps
from penstock import col
folder = {str(tmp_path)!r}
files = ps.read_parquet(folder + "/t.parquet")
loaded = None
for name, query in {ORDINARY!r}.items():
    eval(query)
    if "pandas" in sys.modules:
        loaded = loaded or name
print(loaded)
"""
    assert run_python(code).splitlines()[-1] == "None"


def test_images_to_embeddings_load_no_pandas(tmp_path: Path) -> None:
    """pandas would take a third of the memory of such a query."""
    cv2.imwrite(str(tmp_path / "a.jpg"), np.zeros((8, 8, 3), np.uint8))
    code = f"""
import sys, numpy as np, penstock as ps
def embed(images, is_bright=False, scale=None):
    return [np.float32(image).ravel()[:2] for image in images.to_pylist()]
f32 = ps.DataType.float32()
listed = ps.func.batch(embed, return_dtype=ps.DataType.list(f32))
packed = ps.func.batch(embed, return_dtype=ps.DataType.embedding(f32, 2))
image = ps.col("path").download().decode_image(mode="RGB").resize(4, 4)
df = ps.from_glob_path({str(tmp_path / "*.jpg")!r}).select(listed(image, True).alias("e"), packed(image, scale=None))
df.write_parquet({str(tmp_path / "out")!r})
print("pandas" in sys.modules)
"""
    assert run_python(code).strip() == "False"


def test_lists_of_a_worker_process_load_no_pandas(tmp_path: Path) -> None:
    """Each worker would take longer to import it than to start."""
    code = f"""
import sys, penstock as ps
def words(text, separator, missing):
    return ["pandas" in sys.modules, *map(bool, text.split(separator))]
split = ps.func(words, return_dtype=ps.DataType.list(ps.DataType.bool()), use_process=True)
df = ps.from_pydict({{"t": ["a b", "c", None]}}).where(ps.col("t").not_null())
df = df.select(split(ps.col("t"), " ", None).alias("w").explode())
df.write_parquet({str(tmp_path / "out")!r})
print("pandas" in sys.modules, ps.read_parquet({str(tmp_path / "out")!r}).to_pydict())
"""
    assert run_python(code).strip() == "False {'w': [False, True, True, False, True]}"


def test_the_help_of_the_command_line_loads_no_arrow() -> None:
    """It takes 0.15 seconds, of which Arrow would be as much again; each completion in a shell takes as long."""
    code = "import sys, penstock.cli; print({'pyarrow', 'numpy', 'rich', 'pydantic'} & {*sys.modules})"
    assert run_python(code) == "set()\n"
