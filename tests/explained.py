"""The text that ``explain`` prints."""

from __future__ import annotations

import io
from typing import Any

import penstock as ps


def explained(df: ps.DataFrame, **options: Any) -> str:
    text = io.StringIO()
    df.explain(file=text, **options)
    return text.getvalue()
