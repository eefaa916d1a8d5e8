from __future__ import annotations

from typing import Any

from penstock.expr.column import col
from penstock.expr.nodes import UdfCall
from penstock.plan.explain import explain, explain_stages
from penstock.plan.lower import lower
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MapBatches,
    MonotonicId,
    Plan,
    Repartition,
    Sample,
    UdfProject,
    Unpivot,
    Write,
)
from penstock.plan.optimizer import optimize
from tests.plan.sources import COUNT_TO, EMBED, REPEAT, a, b, call, double, node, s, scan, select


class NullSink:
    name = "parquet"


def inference() -> Plan:
    plan = select(Filter(scan(), node((s == "x") & (a + b > 3))), a, call(EMBED, b).alias("e"))
    sink: Any = NullSink()
    return Write(Limit(plan, 100), sink)


AS_WRITTEN = """\
Write parquet
└─ Limit 100
   └─ Project col(a), _double(col(b)) as e
      └─ Filter (col(s) == 'x') & ((col(a) + col(b)) > 3)
         └─ Scan table"""

AS_RUN = """\
Write parquet
└─ Udf _double(col(b)) as e: batch_size 256; gpus 1; max_workers 4; keep a
   └─ Limit 100
      └─ Filter (col(a) + col(b)) > 3
         └─ Scan table: columns a, b; where col(s) == 'x'"""

STAGES = """\
 0  read table     columns a, b; where (s == "x"); then filter (col(a) + col(b)) > 3
 1  limit 100      from 0; any order
 2  udf _double    from 1; batches of 256; _double(col(b)) as e; gpus 1; max_workers 4; any order
 3  write parquet  from 2; any order"""

BRANCHES = """\
Concat
├─ MapBatches repeat
│  └─ Limit all offset 3
│     └─ Explode l
│        └─ Scan table: columns a, l
└─ Limit 5 offset 1
   └─ MapBatches repeat
      └─ MonotonicId id
         └─ Unpivot n, m as variable, value: ids none
            └─ Project col(n), col(n) as m
               └─ Udf _count_to(col(a)) as n: generator; keep nothing
                  └─ Sample 0.5: seed 7
                     └─ Repartition 2
                        └─ IntoBatches 10
                           └─ Project col(a), col(b) as l
                              └─ Scan table"""

BRANCH_STAGES = """\
 0  read table          columns a, l; then explode l
 1  offset 3            from 0
 2  map_batches repeat  from 1; batches by throughput
 3  read table          then select a, l
 4  into batches        from 3; batches of 10
 5  repartition 2       from 4; 2 equal batches
 6  sample 0.5          from 5; batches of 1024
 7  udf _count_to       from 6; batches by time; _count_to(col(a)) as n; then select n, m
 8  unpivot             from 7
 9  number rows as id   from 8
10  map_batches repeat  from 9; batches by throughput
11  limit 5 offset 1    from 10
12  concat              from 2, 11"""


def test_a_plan_as_written() -> None:
    assert explain(inference()) == AS_WRITTEN


def test_a_plan_as_run() -> None:
    assert explain(optimize(inference())) == AS_RUN


def test_stages() -> None:
    assert explain_stages(lower(optimize(inference()), is_ordered=False)) == STAGES


def test_branches() -> None:
    left = Limit(Explode(scan("a", "l"), ("l",)), None, 3)
    right = Sample(Repartition(IntoBatches(select(scan(), a, b.alias("l")), 10), 2), 0.5, seed=7)
    generated = UdfProject(right, UdfCall(COUNT_TO, (node(a),)), "n", ())
    numbered = MonotonicId(Unpivot(select(generated, "n", col("n").alias("m")), (), ("n", "m")), "id")
    plan = Concat((MapBatches(left, REPEAT), Limit(MapBatches(numbered, REPEAT), 5, 1)))
    assert explain(plan) == BRANCHES
    assert explain_stages(lower(plan, is_ordered=True)) == BRANCH_STAGES


def test_a_scan_with_everything_pushed_down() -> None:
    plan = scan("a", predicate=b > 1, limit=3)
    assert explain(plan) == "Scan table: columns a; where col(b) > 1; limit 3"
    assert explain(select(plan, double(a))) == f"Project _double(col(a))\n└─ {explain(plan)}"
