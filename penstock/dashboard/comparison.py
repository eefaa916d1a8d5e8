"""Compare two jobs: how often their rows agree, which one people prefer, and what their calls cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.config import config
from penstock.dashboard.job import JobContent, JobFolderView, compared_run
from penstock.dashboard.row_pages.counterparts import Differences
from penstock.dashboard.row_pages.found_rows import RowsRequest
from penstock.dashboard.row_pages.row_search import selected
from penstock.errors import InvalidArgumentError
from penstock.frame.read.by_extension import read_files
from penstock.jobs.summary import whole_path

if TYPE_CHECKING:
    from penstock.dashboard.reviews import Review
    from penstock.frame.dataframe import DataFrame


def compare(first: str, second: str, *, by: str | None = None) -> DataFrame:
    """Compare two jobs, by the folders or URLs that they write to. The result has a row for each of them.

    ``by`` is the column that matches rows: texts or whole numbers, by default ``id`` or the first such column of both.
    ``agreement`` is the share of the first run's rows that the second run has with the same values; usage of calls
    does not count. ``wins`` and ``ties`` count the verdicts that people gave on the dashboard. Cost and median latency
    of a call come from the last run of each job; null if they are not known.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for name, answers in {"mini": ["yes", "no"], "large": ["yes", "maybe"]}.items():
    ...     df = ps.from_pydict({"id": [1, 2], "answer": answers}).write_parquet(f"{folder}/{name}", resume=True)
    >>> ps.compare(f"{folder}/mini", f"{folder}/large").select("rows", "agreement", "wins").to_pydict()
    {'rows': [2, 2], 'agreement': [0.5, 0.5], 'wins': [0, 0]}
    """
    from penstock.frame.read.memory import from_pylist

    views = [JobFolderView(root.rstrip("/")) for root in (first, second)]
    contents = [view.content() for view in views]
    with config(progress=False, dashboard=False):
        agreement = _agreement(contents, by)
    verdicts = verdicts_between(views[0], views[1])
    names = ("first", "second")
    return from_pylist(
        [
            {
                "run": view.root,
                "models": ", ".join((run := compared_run(content))["models"]),
                "rows": sum(file.num_rows for file in content.files),
                "failed": len(content.errors),
                "agreement": agreement,
                "wins": verdicts.count(name),
                "ties": verdicts.count("tie"),
                "dollars_per_call": run["dollars"],
                "latency_s": run["latency_s"],
            }
            for name, view, content in zip(names, views, contents, strict=True)
        ]
    )


def verdicts_between(first: JobFolderView, second: JobFolderView) -> list[str]:
    """Return the verdicts on rows of two jobs, in whichever order a person compared the jobs."""
    swapped = {"first": "second", "second": "first", "tie": "tie"}
    return [
        *_verdicts(first.reviews.read().values(), second.root),
        *(swapped[verdict] for verdict in _verdicts(second.reviews.read().values(), first.root)),
    ]


def _verdicts(reviews: Iterable[Review], other: str) -> list[str]:
    return [each["verdict"] for each in reviews if each["verdict"] and each["other"] == whole_path(other)]


def _agreement(contents: Sequence[JobContent], by: str | None) -> float | None:
    """Return the share of the first job's rows that have the same values in the second job."""
    paths, others = ([file.path for file in content.files] for content in contents)
    if not paths or not others:
        return None
    rows = read_files(paths)
    differences = Differences(rows.schema.to_arrow(), others, by or "")
    if by not in (None, differences.key):
        raise InvalidArgumentError(f"compare: by={by!r} is no column of texts or whole numbers of both jobs.")
    num_rows = sum(file.num_rows for file in contents[0].files)
    num_different = selected(rows, {}, RowsRequest(), differences).count_rows()
    return 1 - num_different / num_rows if num_rows else None
