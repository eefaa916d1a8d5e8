"""Expression functions on a million rows, in turn with Daft: ``python -m benchmarks.functions``.

Ten functions, or with ``--sample N --seed S`` others of the table, or those named. Each engine runs in a process of its
own, several times in turn. The least CPU time of all threads counts: it depends least on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TEN = ["upper", "split", "substr", "encode", "normalize", "deserialize", "date_trunc", "list_sum", "total_days"]
TEN += ["regexp_extract"]

# The functions that both systems have, by their arguments.
TABLE = {
    "word": "upper lower capitalize reverse length length_bytes strip lstrip rstrip normalize is_null not_null",
    "word, other": "concat eq_null_safe contains startswith endswith coalesce",
    "word, 'ab', 'xy'": "replace regexp_replace",
    "url, 'e[0-9]+'": "regexp regexp_count regexp_extract regexp_extract_all regexp_split",
    "url, '%page%'": "like ilike",
    "url, '/'": "split",
    "word, 3": "repeat",
    "word, 1, 3": "substr",
    "url, ['host1', 'page']": "count_matches",
    "word, 'base64'": "encode",
    "bytes, 'utf-8'": "decode",
    "'{}-{}', word, i": "format",
    "'-', word, other": "concat_ws",
    "json, 'json', T.struct({'a': T.int64(), 'b': T.string()})": "deserialize",
    "struct, 'json'": "serialize",
    "unit": "arccos arcsin arctanh",
    "x": "abs arccosh arcsinh arctan cbrt ceil cos cosh degrees exp expm1 floor is_inf is_nan "
    "ln log10 log1p log2 negate radians round sign sin sinh sqrt tan tanh",
    "x, y": "arctan2 to_list to_struct",
    "x, 2": "power",
    "x, 2, 50": "between clip",
    "x, lit(0.0)": "fill_nan fill_null",
    "j, lit(2)": "shift_left shift_right",
    "i, [1, 2, 3]": "is_in",
    "time": "year quarter month day day_of_week day_of_year week_of_year hour minute second "
    "millisecond microsecond nanosecond date time to_unix_epoch strftime",
    "'1 day', time": "date_trunc",
    "time, 'Asia/Tokyo'": "replace_time_zone",
    "text_day, '%Y-%m-%d'": "to_date",
    "span": "total_days total_hours total_microseconds total_milliseconds total_minutes total_nanoseconds "
    "total_seconds",
    "list": "list_count list_distinct list_max list_mean list_min list_sort list_sum",
    "list, lit(3)": "list_contains",
    "list, 1, 2": "slice",
    "list, 0": "get",
    "words, '-'": "list_join",
    "vector, vector2": "cosine_distance cosine_similarity dot_product euclidean_distance",
    "": "uuid",
}
EXPRESSIONS = {
    **{name: f"F.{name}({arguments})" for arguments, names in TABLE.items() for name in names.split()},
    **{f"hash of {c}": f"F.hash({c})" for c in ("word", "url", "i", "x")},
    **{
        f"{each} as {dtype}": f"{each}.cast({dtype!r})"
        for each, dtype in (("i", "string"), ("digits", "int64"), ("x", "string"))
    },
    "minhash": "F.minhash(url, num_hashes=16, ngram_size=2)",
    "when": "F.when(i > 0, x).otherwise(y)",
    "arithmetic": "(i + j) * x / y",
}


def measured(engine: str, names: list[str], num_rows: int) -> dict[str, float]:
    """Return the CPU seconds of each function in this process; the second of two runs, which has all code loaded."""
    import importlib

    module, functions = importlib.import_module(engine), importlib.import_module(f"{engine}.functions")
    data = table(num_rows)
    df = module.from_arrow(data).collect()
    known = {"F": functions, "T": module.DataType, "lit": module.lit}
    known |= {name: module.col(name) for name in data.column_names}
    found = {}
    for name in names:
        for _ in range(2):
            start = time.process_time()
            try:
                df.select(eval(EXPRESSIONS[name], known).alias("found")).to_arrow()
            except Exception as exc:  # e.g. a function that one of the two lacks
                print(f"{engine}: {name}: {str(exc)[:200]!r}", file=sys.stderr)
                break
            found[name] = time.process_time() - start
    return found


def table(num_rows: int) -> Any:
    """Return the columns that the expressions read."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    letters = random.integers(97, 107, (20_000, 9)).astype(np.uint8)
    words = np.array([bytes(row[: 4 + row[0] % 6]).decode() for row in letters], dtype=object)

    def drawn(*shape: int) -> Any:
        return pa.array(words[random.integers(0, len(words), shape)].reshape(-1), pa.string())

    def lists(values: Any, size: int) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(values), size)

    day = pa.array(random.integers(0, 20_000, num_rows).astype(np.int32)).cast(pa.date32())
    i, x = random.integers(-1000, 1000, num_rows), random.random(num_rows) * 90
    word = drawn(num_rows)
    return pa.table(
        {
            "word": word,
            "other": drawn(num_rows),
            "url": [f"https://host{n % 97}.com:8080/page/{n}?q={n}#top" for n in range(num_rows)],
            "bytes": word.cast(pa.binary()),
            "digits": pa.array(i).cast(pa.string()),
            "json": [f'{{"a": {n}, "b": "x{n}"}}' for n in range(num_rows)],
            "struct": pa.StructArray.from_arrays([pa.array(i), word], ["a", "b"]),
            "i": i,
            "j": random.integers(1, 50, num_rows),
            "x": x,
            "y": random.random(num_rows) * 90,
            "unit": x / 90,
            "day": day,
            "text_day": day.cast(pa.string()),
            "time": pa.array(random.integers(0, 10**15, num_rows)).cast(pa.timestamp("us")),
            "span": pa.array(random.integers(0, 10**12, num_rows)).cast(pa.duration("us")),
            "list": lists(random.integers(0, 9, num_rows * 4), 4).cast(pa.list_(pa.int64())),
            "words": lists(drawn(num_rows, 3), 3).cast(pa.list_(pa.string())),
            "vector": lists(random.random(num_rows * 8, np.float32), 8),
            "vector2": lists(random.random(num_rows * 8, np.float32), 8),
        }
    )


def main() -> None:
    """Measure both engines in turn and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=__doc__)
    parser.add_argument("functions", nargs="*", help="names of the table; ten of them unless given")
    parser.add_argument("--sample", type=int, help="measure this many functions, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--peers-python", default=".venv-peers/bin/python")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--engine", help="measure one engine in this process")
    options = parser.parse_args()
    names = options.functions or TEN
    if options.sample:
        names = random.Random(options.seed).sample(sorted(EXPRESSIONS), min(options.sample, len(EXPRESSIONS)))
    if options.engine:
        json.dump(measured(options.engine, names, options.rows), sys.stdout)
        return
    best: dict[str, dict[str, float]] = {"penstock": {}, "daft": {}}
    for _ in range(options.repeat):
        for engine, python in (("penstock", sys.executable), ("daft", options.peers_python)):
            command = [python, str(Path(__file__)), *names, "--engine", engine, "--rows", str(options.rows)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            failures = [line for line in done.stderr.splitlines() if line.startswith(f"{engine}: ")]
            print(*failures, sep="\n", end="\n" * bool(failures), file=sys.stderr)
            for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                best[engine][name] = min(seconds, best[engine].get(name, seconds))
    print(f"{'function':30}{'penstock':>10}{'daft':>10}{'ratio':>8}   (CPU seconds, {options.rows:,} rows)")
    for name in (name for name in names if name in best["penstock"] and name in best["daft"]):
        ours, theirs = best["penstock"][name], best["daft"][name]
        print(f"{name:30}{ours:10.3f}{theirs:10.3f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
