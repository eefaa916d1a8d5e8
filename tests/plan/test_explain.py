from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.expr.column import col
from penstock.expr.nodes import UdfCall
from penstock.plan.explain import explain, explain_query, explain_stages
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
from tests.explained import explained
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
└─ Udf _double(col(b)) as e: batch_size 256; gpus 1; concurrency up to 4; keep a
   └─ Limit 100
      └─ Filter (col(a) + col(b)) > 3
         └─ Scan table: columns a, b; where col(s) == 'x'"""

STAGES = """\
write parquet: any order
└─ udf _double: batches of 256; _double(col(b)) as e; gpus 1; concurrency up to 4; any order
   └─ limit 100: any order
      └─ read table: columns a, b; where s = 'x'; then filter (col(a) + col(b)) > 3"""

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
            └─ Project *, col(n) as m
               └─ Udf _count_to(col(a)) as n: generator; keep nothing
                  └─ Sample 0.5: seed 7
                     └─ Repartition 2
                        └─ IntoBatches 10
                           └─ Project col(a), col(b) as l
                              └─ Scan table"""

BRANCH_STAGES = """\
concat
├─ map_batches repeat (1): batches by throughput
│  └─ offset 3
│     └─ read table (1): columns a, l; then explode l
└─ limit 5 offset 1
   └─ map_batches repeat (2): batches by throughput
      └─ number rows as id
         └─ unpivot
            └─ udf _count_to: batches by time; _count_to(col(a)) as n; then select n, m
               └─ sample 0.5: batches of 1024
                  └─ repartition 2: 2 equal batches
                     └─ into batches: batches of 10
                        └─ read table (2): then select a, l"""


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


def test_a_stage_that_only_feeds_a_relation_has_a_name() -> None:
    df = ps.range(3).join(ps.range(3), on="id").sort("id")
    assert [stage.name for stage in lower(df._plan, is_ordered=True)][-2:] == ["pass rows on", "sort id"]


@pytest.mark.parametrize(
    ("messages", "options", "text"),
    [
        ("Summarise: {text}", {}, 'prompt("Summarise: {text}", model=gpt-5-mini)'),
        (ps.format("Summarise: {}", ps.col("text")), {}, 'prompt("Summarise: {text}", model=gpt-5-mini)'),
        (ps.format("As {{json}}: {text}"), {}, 'prompt("As {{json}}: {text}", model=gpt-5-mini)'),
        (
            ps.format("Loud {}, {text}", ps.col("text").upper()),
            {},
            'prompt(format("Loud {}, {text}", upper(col(text))), model=gpt-5-mini)',
        ),
        (["Look:", ps.col("text")], {}, 'prompt("Look:", col(text), model=gpt-5-mini)'),
        (ps.lit("Hello"), {"model": ps.col("m")}, 'prompt("Hello", model=col(m))'),
        (
            ps.col("text"),
            {"temperature": ps.col("t"), "system_message": ps.col("m")},
            "prompt(col(text), system_message=col(m), temperature=col(t), model=gpt-5-mini)",
        ),
    ],
)
def test_a_prompt_is_shown_as_written_with_its_model(messages: Any, options: dict[str, Any], text: str) -> None:
    ps.set_provider("openai", base_url="http://localhost:1/v1", api_key="x")
    call = ps.prompt(messages, **{"model": "gpt-5-mini", **options})
    assert repr(call) == text
    df = ps.from_pydict({"text": ["a"], "m": ["gpt-5"], "t": [0.5]}).select(call.alias("answer"))
    assert explained(df).count(f"{text} as answer") == 3


def test_other_calls_of_models_name_their_model() -> None:
    ps.set_provider("openai", base_url="http://localhost:1/v1", api_key="x")
    text = ps.col("text")
    assert repr(ps.embed_text(text, provider="openai", model="text-embedding-3-small")) == (
        "embed_text(col(text), model=text-embedding-3-small)"
    )
    assert repr(ps.classify_text(text, ["a", "b"], provider="openai", model="gpt-5")) == (
        "classify_text(col(text), model=gpt-5)"
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_explain_fits_the_terminal(width: int) -> None:
    ps.set_provider("openai", base_url="http://localhost:1/v1", api_key="x")
    df = ps.from_pydict({f"column_{number}": ["a"] for number in range(40)})
    for number in range(5):
        question = ps.format("Is {column_1} anything like " + "this very long question " * number + "{column_2}?")
        df = df.with_column(f"answer_{number}", ps.prompt(question, model="gpt-5-mini"))
    df = df.union_all(ps.from_pydict({name: ["a"] for name in df.columns}))
    text = explain_query(df._plan, width)
    assert max(map(len, text.splitlines())) <= width
    whole = explain_query(df._plan)
    assert "".join(text.split()).translate(LINES) == "".join(whole.split()).translate(LINES)


LINES = {ord(character): None for character in "│├└─"}


def test_columns_that_a_select_keeps_are_a_star() -> None:
    df = ps.from_pydict({"a": [1], "b": [2]}).with_column("c", ps.col("a") + 1)
    assert explain(df._plan).splitlines()[0] == "Project *, col(a) + 1 as c"
    many = ps.from_pydict({f"c{number}": [1] for number in range(15)})
    assert explain(many.select(*reversed(many.columns))._plan).splitlines()[0].endswith("col(c3) and 3 more")
