"""The stage that limits the speed of a query, and what would make it faster."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.events import GpuUse, ModelSample, StageKind
from penstock.observe.printable import fit, format_count, visible_text
from penstock.observe.stage_stats import StageStats

MIN_SHARE = 0.2  # a stage that is busy for a smaller share of the time limits nothing
NEAR = 0.8  # of stages that share the cores and are about equally busy, the one with the most work counts
MAX_NAME_WIDTH = 48

REMEDIES: dict[StageKind, str] = {
    "read": "Faster storage, fewer columns or a filter on the source would help.",
    "expressions": "More cores would help.",
    "function": "More workers (concurrency=) or cores would help.",
    "async function": "A higher concurrency= would help.",
    "relation": "More memory (memory_limit=) or fewer columns would help.",
    "write": "More cores, faster storage or another compression would help.",
    "limit": "",
    "concat": "",
}


def bottleneck(stages: Sequence[StageStats], elapsed_s: float) -> StageStats | None:
    """Return the stage whose workers were all busy for the longest time; None if no stage limits the query.

    While the query runs, a stage that is done limits nothing. A stage that did little work waited for cores that others
    had. Work counts with its bundle: if all stages did little, the last one has the cores.
    """
    if any(stage.wall_s is None for stage in stages):
        stages = [stage for stage in stages if stage.wall_s is None and not stage.has_all_rows]
    longest = max((stage.waited_workers_s for stage in stages), default=0.0)
    if longest < MIN_SHARE * elapsed_s or not longest:
        return None
    near = [stage for stage in stages if stage.waited_workers_s >= NEAR * longest]
    working = [stage for stage in near if stage.busy_s >= MIN_SHARE * stage.waited_workers_s]
    return max(working, key=lambda stage: stage.busy_s) if working else near[-1]


def bottleneck_text(
    stages: Sequence[StageStats],
    elapsed_s: float,
    reader_s: float,
    models: Sequence[ModelSample] = (),
    gpus: Sequence[GpuUse] = (),
) -> str:
    """Return sentences that name the bottleneck and what would help, or nothing if no stage limits the query."""
    if elapsed_s and reader_s > elapsed_s / 2:
        share = reader_s / elapsed_s
        return f"Bottleneck: the code that reads the rows. The query waited for it {share:.0%} of the time."
    if (stage := bottleneck(stages, elapsed_s)) is None:
        return ""
    share, name = min(stage.waited_workers_s / elapsed_s, 1.0), fit(visible_text(stage.stage), MAX_NAME_WIDTH)
    text = f"Bottleneck: {name}. {_busy_workers(stage)} {share:.0%} of the time. {_remedy(stage, models, gpus)}"
    return text.rstrip()


def _busy_workers(stage: StageStats) -> str:
    if stage.kind == "async function":
        return "Calls were under way"
    return (
        "Its worker was busy" if stage.num_workers == 1 else f"Its {stage.num_workers} workers, or all cores, were busy"
    )


def _remedy(stage: StageStats, models: Sequence[ModelSample], gpus: Sequence[GpuUse]) -> str:
    model = next((each for each in models if (each.provider, each.model) == stage.model), None)
    if model is not None:
        return _model_remedy(model)
    if stage.kind == "function" and gpus:
        busy = sum(each.busy for each in gpus) / len(gpus)
        return "More GPUs would help." if busy > NEAR else f"Larger batches would help: GPUs were {busy:.0%} busy."
    return REMEDIES[stage.kind]


def _model_remedy(model: ModelSample) -> str:
    if model.num_refused:
        refused = format_count(model.num_refused, "request")
        return f"{model.provider} refused {refused}: a higher rate limit or batch_api=True would help."
    return "A faster model or a higher concurrency= would help."
