"""The base of models that run in this process or its workers."""

from __future__ import annotations

import gc
from abc import abstractmethod
from typing import Any, Generic, TypeVar

from penstock.ai.local.checkpoint import Checkpoint, naming_model
from penstock.ai.local.weights import has_gpu
from penstock.ai.provider import (
    ImageClassification,
    ImageEmbedding,
    Model,
    ModelTask,
    Prompting,
    TextClassification,
    TextEmbedding,
    TextRelevance,
)
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchSize, Resources

OPTIONS = (
    *("batch_size", "concurrency", "device", "dtype", "gpus", "revision", "trust_remote_code", "attn_implementation"),
)
"""Options that every local model accepts."""

Runtime = TypeVar("Runtime")

TEXT_TASKS, IMAGE_TASKS = 3, 6
"""Tasks of an encoder in one worker: one computes while others are tokenized, copied or converted.

A task of images has tens of megabytes, which take longer to reach the GPU than the model needs for them.
"""
GPU_IMAGES = 256
"""Images of a task, which a GPU computes in one batch. Larger ones only take memory."""


class LocalModel(Model, Generic[Runtime]):
    """A model of a checkpoint. Its runtime holds the weights; it is built in the worker and never pickled."""

    def __init__(self, checkpoint: Checkpoint, task: ModelTask, **options: Any) -> None:
        self._checkpoint = checkpoint
        self._options = options
        self._function = task.function
        self._runtime: Runtime | None = None
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        is_on_gpu = self.resources.gpus > 0
        self.first_rows = first_rows_of(task, is_on_gpu=is_on_gpu)
        has_images = isinstance(task, ImageEmbedding | ImageClassification)
        self.max_rows = GPU_IMAGES if has_images and is_on_gpu else None

    @abstractmethod
    def _build(self) -> Runtime:
        """Return the weights and the objects around them, ready for inference."""

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._loaded()
        return self._runtime

    def _loaded(self) -> Runtime:
        """Build the runtime without collecting garbage: all that imports make stays, and looking at it takes long."""
        self._checkpoint.warm_up()
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            with naming_model(self._checkpoint.name):
                return self._build()
        finally:
            if was_enabled:
                gc.enable()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_runtime": None}

    def identity(self) -> dict[str, Any]:
        return {"function": self._function, **self._checkpoint.identity(), **self._options}

    def load(self) -> None:
        self._runtime = self._loaded()

    def close(self) -> None:
        self._runtime = None


def resources_of(task: ModelTask) -> Resources:
    """Return the resources of a worker: a GPU where there is one, else a thread of the user's process.

    Without ``concurrency`` there are as many workers as GPUs are free.
    torch uses all cores from one thread and releases the GIL, so a second worker on the CPU would compete with it.
    """
    options = task.options
    concurrency = options.get("concurrency")
    if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):
        raise InvalidArgumentError(f"{task.function}: concurrency is a whole number of workers; got {concurrency!r}")
    device = options.get("device")
    wants_gpu = has_gpu() if device is None else str(device).startswith("cuda")
    gpus = options.get("gpus", 1 if wants_gpu else 0)
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus <= 1:
        raise InvalidArgumentError(
            f"{task.function}: with provider 'transformers' a model has one GPU, or a share of one; got gpus={gpus!r}. "
            "For a copy on each free GPU leave it out, and for a model that needs several GPUs use provider='vllm'."
        )
    num_tasks = tasks_at_once(task, is_on_gpu=gpus > 0)
    if gpus:
        return Resources(gpus=gpus, min_workers=concurrency or 1, max_workers=concurrency, tasks_per_worker=num_tasks)
    if concurrency is None:
        return Resources(min_workers=1, max_workers=1, tasks_per_worker=num_tasks, use_process=False)
    return Resources(min_workers=concurrency, max_workers=concurrency)


def tasks_at_once(task: ModelTask, *, is_on_gpu: bool) -> int:
    match task:
        case Prompting():
            return 1
        case ImageEmbedding() | ImageClassification() if is_on_gpu:
            return IMAGE_TASKS
        case _:
            return TEXT_TASKS


def first_rows_of(task: ModelTask, *, is_on_gpu: bool) -> int | None:
    """Return the rows of a first batch: enough for batches of similar lengths, few enough to show progress."""
    match task:
        case TextEmbedding() | TextClassification() | TextRelevance():
            return 4_096 if is_on_gpu else 64
        case ImageEmbedding() | ImageClassification():
            return GPU_IMAGES if is_on_gpu else 16
        case _:
            return None


def batch_size_of(task: ModelTask) -> BatchSize:
    size = task.options.get("batch_size", "auto")
    if size not in ("auto", None) and (not isinstance(size, int) or size < 1):
        raise InvalidArgumentError(f"{task.function}: batch_size is a number of rows or 'auto'; got {size!r}")
    return size  # type: ignore[no-any-return]
