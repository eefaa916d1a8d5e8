"""Rows that are computed again get their place among the others."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, strategies as st

from penstock.contracts import Origin
from penstock.jobs import row_order
from penstock.jobs.row_order import in_input_order
from penstock.jobs.state import JobPart, JobState

POSITIONS = {7: (0, 0), 3: (0, 1)}  # the read 7 comes before the read 3
PLACES = [(read, row) for read in POSITIONS for row in range(12)]


def state_of(files: dict[str, list[tuple[int, int]]]) -> JobState:
    """Return the state of a job whose files have these rows, given as read and row."""
    return JobState(
        parts=[
            JobPart(({"path": name, "rows": len(rows)},), tuple(Origin(read, row, 1) for read, row in rows))
            for name, rows in files.items()
        ]
    )


def rows_after(state: JobState, run_id: str = "r2", max_rows: int = 100) -> dict[str, list[tuple[Any, Any]]]:
    """Return the rows of each file, by its name, after they were put in order; check that pieces match origins."""
    stored = {part.files[0]["path"]: part.origins for part in state.parts}
    found: dict[str, list[tuple[Any, Any]]] = {}
    for each in in_input_order(state, POSITIONS, run_id, max_rows):
        copied = [row for file, start, stop in each.pieces for row in stored[file["path"]][start:stop]]
        assert copied == each.origins
        name = f"{each.name}.parquet" if each.file is None else each.file["path"]
        assert name not in found
        found[name] = [(origin.source, origin.start) for origin in each.origins]
    return found


def test_files_in_order_stay() -> None:
    files = {"r1-0.parquet": PLACES[:5], "r1-5.parquet": PLACES[5:20], "r2-0.parquet": PLACES[20:]}
    assert rows_after(state_of(files)) == files


def test_only_files_with_rows_between_are_made_again() -> None:
    files = {"r1-0.parquet": [PLACES[0], PLACES[2]], "r1-3.parquet": PLACES[3:], "r2-0.parquet": [PLACES[1]]}
    assert rows_after(state_of(files)) == {
        "r1-3-r2-000000.parquet": PLACES[:3],
        "r1-3.parquet": PLACES[3:],
    }


@given(st.permutations(PLACES), st.lists(st.integers(0, 23), max_size=5), st.integers(1, 30), st.booleans())
def test_names_sort_as_the_rows_do(
    rows: list[tuple[int, int]], cuts: list[int], max_rows: int, has_long_names: bool
) -> None:
    bounds = [0, *sorted(set(cuts) - {0}), len(rows)]
    stem = "r1-" + "x" * (row_order.MAX_NAME if has_long_names else 1)
    files = {f"{stem}-{start}.parquet": rows[start:stop] for start, stop in itertools.pairwise(bounds)}
    found = rows_after(state_of(files), max_rows=max_rows)
    assert [row for name in sorted(found) for row in found[name]] == PLACES
    assert all(len(rows) <= max_rows for name, rows in found.items() if name not in files)
    assert rows_after(state_of({name: found[name] for name in sorted(found)}), "r3", max_rows) == found
