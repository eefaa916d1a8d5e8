"""The stages of a query as a diagram: Mermaid for Markdown pages, or an SVG image."""

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

BOX = 340, 54  # width and height of a stage
GAP = 24, 30  # between boxes
MAX_NAME, MAX_DETAILS = 42, 60  # characters

STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2937}.name{font-weight:600}.details{font-size:11px;fill:#6b7280}
rect{fill:#f8fafc;stroke:#94a3b8}
path{fill:none;stroke:#94a3b8;marker-end:url(#end)}marker path{fill:#94a3b8;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.details{fill:#9ca3af}rect{fill:#1e293b;stroke:#64748b}}"""


def diagram(plan: Plan, format: str) -> str:
    """Return the stages of a plan as ``"mermaid"`` or ``"svg"``."""
    drawings = {"mermaid": mermaid, "svg": svg}
    if format not in drawings:
        raise InvalidArgumentError(f"explain(format={format!r}) is not known; use 'text', 'mermaid' or 'svg'.")
    return drawings[format](lower(optimize(plan), is_ordered=True))


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


def svg(stages: Sequence[Stage]) -> str:
    """Return stages as an SVG image, the sources at the top."""
    places = _places(stages)
    width = max(x for x, _ in places) + BOX[0] + GAP[0]
    height = max(y for _, y in places) + BOX[1] + GAP[1]
    boxes, arrows = [], []
    for stage, (x, y) in zip(stages, places, strict=True):
        details = escape(shorten("; ".join(stage_details(stage)), MAX_DETAILS, placeholder="…"))
        name = escape(shorten(stage.name, MAX_NAME, placeholder="…"))
        boxes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="8"/>'
            f'<text class="name" x="{x + 14:g}" y="{y + 23:g}">{name}</text>'
            f'<text class="details" x="{x + 14:g}" y="{y + 41:g}">{details}</text>'
        )
        for start in stage.inputs:
            from_x, from_y = places[start][0] + BOX[0] / 2, places[start][1] + BOX[1]
            to_x, middle = x + BOX[0] / 2, (from_y + y) / 2
            arrows.append(
                f'<path d="M{from_x:g} {from_y:g}C{from_x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {y:g}"/>'
            )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">',
            f"<style>{STYLE}</style>",
            '<marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
            '<path d="M0 0L8 4L0 8z"/></marker>',
            *arrows,
            *boxes,
            "</svg>",
        ]
    )


def _places(stages: Sequence[Stage]) -> list[tuple[float, float]]:
    """Return the corner of each box: a stage stands below its inputs, in the middle of them."""
    columns: list[float] = []
    rows: list[int] = []
    num_sources = 0
    for stage in stages:
        if stage.inputs:
            columns.append(sum(columns[each] for each in stage.inputs) / len(stage.inputs))
            rows.append(1 + max(rows[each] for each in stage.inputs))
        else:
            columns.append(num_sources)
            rows.append(0)
            num_sources += 1
    return [
        (GAP[0] + column * (BOX[0] + GAP[0]), GAP[1] + row * (BOX[1] + GAP[1]))
        for column, row in zip(columns, rows, strict=True)
    ]
