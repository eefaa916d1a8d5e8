"""The times at which kernels ran on the GPU, by torch's profiler in the process of the model.

nvidia-smi gives the mean of up to a second before each of its samples, which is most of a run that takes a second.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.ai.local.transformers import TextEmbedder, TransformersProvider
from penstock.ai.local.vision import ImageEmbedder
from penstock.ai.provider import Model, ModelTask

Interval = tuple[float, float]
"""Start and end in seconds since the epoch."""


@dataclass(frozen=True)
class ProfiledTransformers(TransformersProvider):
    """Local encoders that write the times of their kernels to a file when they are closed."""

    path: str = ""

    def model(self, task: ModelTask) -> Model:
        model: Any = super().model(task)
        model.__class__ = {TextEmbedder: ProfiledTexts, ImageEmbedder: ProfiledImages}[type(model)]
        model.kernel_path = self.path
        return model  # type: ignore[no-any-return]


class Profiled:
    """Profiles a model from its load to its end, in a thread: the profiler is started and stopped by the same one."""

    kernel_path: str

    def load(self) -> None:
        super().load()  # type: ignore[misc]
        self._has_started, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._profile)
        self._thread.start()
        self._has_started.wait()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        super().close()  # type: ignore[misc]

    def _profile(self) -> None:
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            self._has_started.set()
            self._is_over.wait()
        found = profiler.profiler.kineto_results.events()
        on_gpu = [each for each in found if each.device_type() == DeviceType.CUDA]
        kernels = [each for each in on_gpu if not each.name().startswith(("Memcpy", "Memset"))]
        times = [(each.start_ns() / 1e9, (each.start_ns() + each.duration_ns()) / 1e9) for each in kernels]
        Path(self.kernel_path).write_text(json.dumps(times))


class ProfiledTexts(Profiled, TextEmbedder):
    pass


class ProfiledImages(Profiled, ImageEmbedder):
    pass


def busy_percent(kernels: Sequence[Interval], start_s: float, end_s: float) -> float:
    """Return the share of the time between two times in which a kernel ran.

    >>> busy_percent([(0.0, 2.0), (1.0, 3.0), (9.0, 12.0)], 1.0, 11.0)
    40.0
    """
    total, until = 0.0, start_s
    for kernel_start, kernel_end in sorted(kernels):
        kernel_start, kernel_end = max(kernel_start, until), min(kernel_end, end_s)
        if kernel_end > kernel_start:
            total += kernel_end - kernel_start
            until = kernel_end
    return 100 * total / (end_s - start_s)
