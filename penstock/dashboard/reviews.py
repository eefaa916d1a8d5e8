"""Notes, thumbs and verdicts of people on rows, kept beside the job: ``ps.read_json("out/_reviews/")`` reads them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from penstock.errors import InvalidArgumentError
from penstock.io.commit.target import Place
from penstock.types.row_numbers import RowPlace

FILE = "_reviews/reviews.jsonl"
VERDICTS = ("", "first", "second", "tie")
MAX_NOTE_CHARS = 10_000

Review = dict[str, Any]


class Reviews:
    """The reviews of a job, one for each row: a JSON line with the row, its thumb (1, -1 or 0), note and verdict.

    A verdict says which of two runs is better; ``other`` is the second run. A row is known by its place in the input if
    that is known, else by its number in the output.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()

    def read(self) -> dict[object, Review]:
        """Return the reviews by row; see ``row_name``."""
        lines = (self._place.read(FILE) or b"").splitlines()
        reviews = [orjson.loads(line) for line in lines if line.strip()]
        return {_name_of(each): each for each in reviews}

    def write(self, number: int, place: RowPlace | None, keys: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Replace the review of a row. ``keys`` are columns that find the row in a DataFrame."""
        thumb, note, verdict = int(asked.get("thumb", 0)), str(asked.get("note", "")), str(asked.get("verdict", ""))
        if thumb not in (-1, 0, 1) or verdict not in VERDICTS or len(note) > MAX_NOTE_CHARS:
            raise InvalidArgumentError(
                f"A thumb is -1, 0 or 1, a verdict one of {VERDICTS}, a note at most 10,000 letters."
            )
        review = {
            "row": None if place is None else place.number,
            "source": None if place is None else place.input,
            "number": number,
            "thumb": thumb,
            "note": note,
            "verdict": verdict,
            "other": str(asked.get("other", "")),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with self._lock:
            reviews = self.read()
            reviews.pop(_name_of(review), None)
            if thumb or note or verdict:
                reviews[_name_of(review)] = {**keys, **review}
            self._place.write(FILE, b"".join(orjson.dumps(each) + b"\n" for each in reviews.values()))


def row_name(number: int, place: RowPlace | None) -> object:
    """Return what a review is found by."""
    return number if place is None else (place.input, place.number)


def _name_of(review: Review) -> object:
    known = review["row"] is not None
    return row_name(review["number"], RowPlace(review["source"], review["row"]) if known else None)
