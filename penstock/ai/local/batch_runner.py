"""Run the batches of a task on a device and return their results in the order of the rows.

Several threads may run tasks at the same time, so that one tokenizes while another computes.

On a CPU each core computes a batch of its own with one thread of torch. Threads that share each matrix product instead
wait for each other hundreds of times in a batch, and for other programs on their cores.

On a GPU the batches are queued without waiting for them, and the results of a task come back in one copy. The next task
is queued meanwhile, so the device always has work.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np

from penstock.ai.local.compiled import CALLING_MODULES
from penstock.ai.local.tokens import to_device
from penstock.config import available_cpus
from penstock.udf.retry import check_call_not_cancelled

NDArray = np.ndarray[Any, Any]
Forward = Callable[[NDArray], Any]
"""Computes the results of some rows: a tensor with a line for each."""

SWITCH_S = 0.0001
"""The switch interval of Python in a process with a GPU: short, so that the thread that feeds the GPU waits little."""


class BatchRunner:
    """``max_tokens`` bounds the tokens of a batch, padding included. It is reduced when the device is out of memory."""

    def __init__(self, device: Any, *, cpu_tokens: int, gpu_tokens: int) -> None:
        import torch

        self._is_gpu = device.type == "cuda"
        self._device = device
        self._lock = threading.Lock()
        self.max_tokens = cpu_tokens if device.type == "cpu" else gpu_tokens
        self._num_threads = 1
        if device.type == "cpu":
            self._num_threads = max(1, min(torch.get_num_threads(), int(available_cpus())))
        self._threads = _single_threads(self._num_threads) if self._num_threads > 1 else None
        if self._is_gpu:
            sys.setswitchinterval(SWITCH_S)

    def run(self, lengths: NDArray, forward: Forward) -> NDArray:
        """Return the results of all rows as an array of float32. ``lengths`` are the tokens of each row, at least one.

        The longest rows come first, so a lack of memory shows at once.
        """
        if self._is_gpu:
            return self._run_queued(lengths, forward)
        max_tokens = min(self.max_tokens, int(lengths.sum()) // self._num_threads)  # work for each thread
        batches = batches_by_length(lengths, max_tokens)
        compute = _inferring(forward)
        parts = list(map(compute, batches) if self._threads is None else self._threads.map(compute, batches))
        out = np.empty((len(lengths), parts[0].shape[1]), np.float32)
        for rows, part in zip(batches, parts, strict=True):
            out[rows] = part
        return out

    def _run_queued(self, lengths: NDArray, forward: Forward) -> NDArray:
        import torch

        with self._lock, torch.inference_mode():
            order: list[NDArray] = []
            parts = []
            left = batches_by_length(lengths, self.max_tokens)[::-1]
            while left:
                check_call_not_cancelled()
                rows = left.pop()
                try:
                    with CALLING_MODULES:
                        parts.append(forward(rows).float())
                    order.append(rows)
                except torch.OutOfMemoryError:
                    if len(rows) == 1:
                        raise
                    left += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
                    self.max_tokens = max(1, len(rows) * int(lengths[rows].max()) // 2)
                    torch.cuda.empty_cache()
            places = to_device(np.argsort(np.concatenate(order)), self._device)
            found = torch.cat(parts)[places]
            host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            host.copy_(found, non_blocking=True)
            is_done = torch.cuda.Event(blocking=True)
            is_done.record()
        is_done.synchronize()
        return host.numpy()  # type: ignore[no-any-return]


def _inferring(forward: Forward) -> Callable[[NDArray], NDArray]:
    """Return a function for the threads of the runner. In a query that was stopped it raises instead of computing."""
    import torch

    def compute(rows: NDArray) -> NDArray:
        check_call_not_cancelled()
        with torch.inference_mode():
            return forward(rows).float().cpu().numpy()  # type: ignore[no-any-return]

    context = copy_context()  # of the query's thread, which tells whether the query was stopped
    return lambda rows: context.copy().run(compute, rows)


def _single_threads(num_threads: int) -> ThreadPoolExecutor:
    """Return threads in which torch uses one core each. Other threads of the process keep their number of cores."""
    import torch

    before = torch.get_num_threads()
    started = threading.Barrier(num_threads + 1)

    def start() -> None:
        torch.set_num_threads(1)
        started.wait()

    threads = ThreadPoolExecutor(num_threads, "penstock-encoder", start)
    for _ in range(num_threads):
        threads.submit(int)
    started.wait()
    # The number is also the default of threads that have not used torch yet. One that ends at once restores it.
    last = threading.Thread(target=torch.set_num_threads, args=(before,))
    last.start()
    last.join()
    return threads


def batches_by_length(lengths: NDArray, max_tokens: int) -> list[NDArray]:
    """Return the rows in batches of at most ``max_tokens`` including padding, at least one row each.

    The longest rows come first, so a lack of memory shows at once.

    >>> batches_by_length(np.array([3, 9, 2, 3]), max_tokens=9)
    [array([1]), array([0, 3, 2])]
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        num_rows = max(1, max_tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + num_rows])
        start += num_rows
    return batches
