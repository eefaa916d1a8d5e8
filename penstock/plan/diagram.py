"""The stages of a query as a Mermaid diagram, for Markdown pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import shorten

from penstock.errors import InvalidArgumentError
from penstock.plan.explain import stage_details
from penstock.plan.lower import lower
from penstock.plan.nodes import Plan
from penstock.plan.optimizer import optimize
from penstock.plan.stages import Stage

MAX_DETAILS = 60  # characters


def diagram(plan: Plan, format: str) -> str:
    """Return the stages of a plan as a diagram; ``"mermaid"`` is the only format."""
    if format != "mermaid":
        raise InvalidArgumentError(
            f"explain(format={format!r}) is not known; use 'text' or 'mermaid', which Mermaid's tools draw as an image."
        )
    return mermaid(lower(optimize(plan), is_ordered=True))


def mermaid(stages: Sequence[Stage]) -> str:
    """Return stages as a Mermaid flowchart.

    flowchart TD
      s0["read parquet"]
      s1["write parquet"]
      s0 --> s1
    """
    lines = ["flowchart TD"]
    for index, stage in enumerate(stages):
        details = shorten("; ".join(stage_details(stage)), MAX_DETAILS, placeholder="…")
        text = "<br/>".join(escape(part, quote=False).replace('"', "#quot;") for part in (stage.name, details) if part)
        lines.append(f'  s{index}["{text}"]')
    lines += [f"  s{start} --> s{index}" for index, stage in enumerate(stages) for start in stage.inputs]
    return "\n".join(lines)
