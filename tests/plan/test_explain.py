from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import penstock as ps
from penstock.expr.column import col
from penstock.expr.nodes import UdfCall
from penstock.plan.diagram import mermaid, svg
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
write parquet: any order
└─ udf _double: batches of 256; _double(col(b)) as e; gpus 1; max_workers 4; any order
   └─ limit 100: any order
      └─ read table: columns a, b; where (s == "x"); then filter (col(a) + col(b)) > 3"""

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
concat
├─ map_batches repeat: batches by throughput
│  └─ offset 3
│     └─ read table: columns a, l; then explode l
└─ limit 5 offset 1
   └─ map_batches repeat: batches by throughput
      └─ number rows as id
         └─ unpivot
            └─ udf _count_to: batches by time; _count_to(col(a)) as n; then select n, m
               └─ sample 0.5: batches of 1024
                  └─ repartition 2: 2 equal batches
                     └─ into batches: batches of 10
                        └─ read table: then select a, l"""


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


MERMAID = """\
flowchart TD
  s0["read table<br/>columns a"]
  s1["read table<br/>columns a; where (s == #quot;&lt;b&gt;#quot;)"]
  s2["concat"]
  s3["map_batches repeat<br/>batches by throughput"]
  s0 --> s2
  s1 --> s2
  s2 --> s3"""


def test_stages_as_a_diagram() -> None:
    stages = lower(MapBatches(Concat((scan("a"), scan("a", predicate=s == "<b>"))), REPEAT), is_ordered=True)
    assert mermaid(stages) == MERMAID
    drawing = ElementTree.fromstring(svg(stages))
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:5] == ["read table", "columns a", "read table", 'columns a; where (s == "<b>")', "concat"]
    corners = [
        (float(box.get("x", 0)), float(box.get("y", 0))) for box in drawing.iter("{http://www.w3.org/2000/svg}rect")
    ]
    (left, top), (right, _), (middle, below), (_, last) = corners
    assert left < middle < right
    assert top < below < last


def test_a_stage_that_only_feeds_a_relation_has_a_name() -> None:
    df = ps.range(3).join(ps.range(3), on="id").sort("id")
    assert [stage.name for stage in lower(df._plan, is_ordered=True)][-2:] == ["pass rows on", "sort id"]
