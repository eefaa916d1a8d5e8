"""Temporary files for what does not fit in memory."""

from __future__ import annotations

import tempfile
from typing import Any

from penstock.config import get_config


def spill_file() -> Any:
    """Open a file without a name in ``temp_dir``. The system frees it when it is closed or the process is killed."""
    return tempfile.TemporaryFile(prefix="penstock-", dir=get_config().temp_dir or None)
