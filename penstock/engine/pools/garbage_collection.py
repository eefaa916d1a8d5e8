"""Rarer garbage collections while many calls wait."""

from __future__ import annotations

import gc
import threading


class RareCollections:
    """Raises the thresholds of the garbage collector while API calls wait: thousands of live objects, few cycles.

    Collections took a fifth of a client's time. Thresholds are process-wide, so the last user restores them.
    """

    THRESHOLDS = (50_000, 20, 50)

    _lock = threading.Lock()
    _num_users = 0
    _before = (0, 0, 0)

    @classmethod
    def begin(cls) -> None:
        with cls._lock:
            cls._num_users += 1
            if cls._num_users == 1:
                cls._before = gc.get_threshold()
                if cls._before[0]:  # 0: the user has switched it off
                    gc.set_threshold(*cls.THRESHOLDS)

    @classmethod
    def end(cls) -> None:
        with cls._lock:
            cls._num_users -= 1
            if not cls._num_users and cls._before[0]:
                gc.set_threshold(*cls._before)
