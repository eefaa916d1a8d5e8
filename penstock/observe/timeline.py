"""A timeline of a query as an SVG image: for each stage its rows per second and what it waited for, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from penstock.events.events import QuerySampled
from penstock.observe.printable import fit, format_bytes, format_number, format_seconds, visible_text

WIDTH, LEFT, RIGHT, TOP = 960, 250, 90, 80
LANE, CHART, STRIP = 70, 40, 8  # heights
COLORS = {"workers": "#2563eb", "input": "#cbd5e1", "output": "#f59e0b"}
MEANINGS = {"workers": "busy", "input": "waits for input", "output": "waits for later stages"}
MAX_NAME = 34

STYLE = """\
text{font:12px system-ui,sans-serif;fill:#1f2937}.name{font-weight:600}.small{font-size:11px;fill:#6b7280}
.rate{fill:#2563eb33;stroke:#2563eb}.memory{fill:#10b98133;stroke:#10b981}.axis{stroke:#cbd5e1}svg{background:#fff}"""


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """A sample, with the rows that each stage had given by then. ``elapsed_s`` is the time since the start."""

    elapsed_s: float
    num_rows: tuple[int, ...]
    sample: QuerySampled


def timeline_svg(names: Sequence[str], points: Sequence[TimelinePoint], elapsed_s: float | None, note: str) -> str:
    """Return the timeline of stages, with a note below its title. A query too short for samples has empty charts."""
    total_s = max(elapsed_s or 0.0, points[-1].elapsed_s if points else 0.0, 1e-9)
    ending = "still running" if elapsed_s is None else format_seconds(elapsed_s)
    parts = [
        f'<text class="name" x="16" y="24">{ending}</text>',
        f'<text x="16" y="46">{escape(note)}</text>',
    ]
    for number, (state, meaning) in enumerate(MEANINGS.items()):
        x = LEFT + 150 * number
        parts.append(f'<rect x="{x}" y="58" width="10" height="10" fill="{COLORS[state]}"/>')
        parts.append(f'<text class="small" x="{x + 15}" y="67">{meaning}</text>')
    times = [0.0, *(point.elapsed_s for point in points)]
    for stage, name in enumerate(names):
        top = TOP + stage * LANE
        rows = [0, *(point.num_rows[stage] for point in points)]
        spans = [after - before for before, after in pairwise(times)]
        rates = [(new - old) / max(span, 1e-9) for old, new, span in zip(rows, rows[1:], spans, strict=False)]
        parts += _lane(
            name, top, times, rates, total_s, "rate", f"{format_number(round(max(rates, default=0)))} rows/s"
        )
        for start_s, end_s, point in zip(times, times[1:], points, strict=False):
            sampled = point.sample.stages
            waiting_for = sampled[stage].waiting_for if stage < len(sampled) else None
            if waiting_for is not None:
                start, width = _x(start_s, total_s), _x(end_s, total_s) - _x(start_s, total_s)
                parts.append(
                    f'<rect x="{start:.1f}" y="{top + CHART + 4}" width="{width:.1f}" height="{STRIP}" '
                    f'fill="{COLORS[waiting_for]}"/>'
                )
    held = [float(point.sample.nbytes_held) for point in points]
    top = TOP + len(names) * LANE
    parts += _lane("data held", top, times, held, total_s, "memory", format_bytes(max(held, default=0)))
    height = top + LANE + 10
    for part in range(5):
        at_s = total_s * part / 4
        parts.append(f'<text class="small" x="{_x(at_s, total_s):.1f}" y="{height - 8}">{format_seconds(at_s)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def _lane(
    name: str, top: int, times: Sequence[float], values: Sequence[float], total_s: float, kind: str, most: str
) -> list[str]:
    """Return a chart with its name at the left and its highest value at the right."""
    bottom, highest = top + CHART, max(values, default=0.0) or 1.0
    steps = [f"M{LEFT} {bottom}"]
    for start_s, end_s, value in zip(times, times[1:], values, strict=False):
        y = bottom - value / highest * (CHART - 6)
        steps.append(f"L{_x(start_s, total_s):.1f} {y:.1f}L{_x(end_s, total_s):.1f} {y:.1f}")
    steps.append(f"L{_x(times[-1], total_s):.1f} {bottom}")
    return [
        f'<text x="16" y="{top + 26}">{escape(fit(visible_text(name), MAX_NAME))}</text>',
        f'<path class="{kind}" d="{"".join(steps)}"/>',
        f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>',
        f'<text class="small" x="{WIDTH - RIGHT + 8}" y="{top + 14}">{escape(most)}</text>',
    ]


def _x(time_s: float, total_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * time_s / total_s
