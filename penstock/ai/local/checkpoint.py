"""A model on disk as data: its name, and how it is to be loaded. Loaded by whoever holds it, in the worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.ai.local import weights as local_weights
from penstock.ai.provider import ModelTask
from penstock.errors import InvalidArgumentError, RequestRefusedError
from penstock.expr.udf import BatchSize, Resources

DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu")
DTYPES = ("float32", "bfloat16", "float16", "auto")
OPTIONS = (
    *("batch_size", "concurrency", "device", "dtype", "gpus", "revision", "trust_remote_code", "attn_implementation"),
)
"""What every local model takes."""


@dataclass(frozen=True)
class Checkpoint:
    """``dtype`` of None is float32 on a CPU and the fastest 16-bit type on a GPU; ``auto`` is that of the weights."""

    name: str
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    attn_implementation: str | None = None

    @staticmethod
    def of(name: str, task: ModelTask) -> Checkpoint:
        """Return the model that a task names, with the task's options for loading it."""
        local_weights.require_transformers(f"{task.function} with provider 'transformers'")
        options = task.options
        if (dtype := options.get("dtype")) is not None and dtype not in DTYPES:
            raise InvalidArgumentError(f"{task.function}: dtype is one of {', '.join(DTYPES)}; got {dtype!r}")
        return Checkpoint(
            name,
            options.get("revision"),
            checked_device(task.function, options.get("device")),
            dtype,
            bool(options.get("trust_remote_code", False)),
            options.get("attn_implementation"),
        )

    def read_json(self, path: str) -> Any | None:
        return local_weights.read_json(self.name, path, self.revision)

    def config(self, subfolder: str = "") -> dict[str, Any]:
        """Return the model's configuration as its file has it."""
        if (config := self.read_json(f"{subfolder}/config.json".lstrip("/"))) is None:
            raise RequestRefusedError(f"Model {self.name!r} has no config.json, so transformers cannot load it.")
        return dict(config)

    def load_config(self) -> Any:
        """Return the configuration with the defaults of its family, which takes loading transformers."""
        import transformers

        with quiet(), explained(self.name):
            config = dict(self.config())
            return transformers.AutoConfig.for_model(config.pop("model_type"), **config)

    def identity(self) -> dict[str, Any]:
        """Return what determines a model's results: its files, and as what they are computed. Loads nothing.

        Which type of 16 bits a GPU would choose is not known without torch; it is the same for all GPUs of today.
        """
        is_gpu = has_gpu() if self.device is None else not self.device.startswith("cpu")
        return {
            "weights": local_weights.fingerprint(self.name, self.revision),
            "dtype": self.dtype or ("16 bits" if is_gpu else "float32"),
            "attention": self.attn_implementation,
        }

    def folder(self) -> Path:
        return local_weights.weights_folder(self.name, self.revision)

    def torch_device(self) -> Any:
        """Return the device that was asked for, else a GPU if this process sees one."""
        import torch

        if self.device is not None:
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def torch_dtype(self) -> Any:
        import torch

        if self.dtype is not None:
            return "auto" if self.dtype == "auto" else getattr(torch, self.dtype)
        if self.torch_device().type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

    def load(self, auto_class: str, subfolder: str = "") -> Any:
        """Return the weights as the named class of transformers, on the device, ready for inference."""
        import transformers

        options: dict[str, Any] = {"dtype": self.torch_dtype(), "trust_remote_code": self.trust_remote_code}
        if self.attn_implementation is not None:
            options["attn_implementation"] = self.attn_implementation
        with quiet(), explained(self.name):
            model = getattr(transformers, auto_class).from_pretrained(str(self.folder() / subfolder), **options)
        return model.to(self.torch_device()).eval()

    def load_beside(self, auto_class: str, subfolder: str = "", **options: Any) -> Any:
        """Return what stands beside the weights: a tokenizer, a processor."""
        import transformers

        with quiet(), explained(self.name):
            return getattr(transformers, auto_class).from_pretrained(
                str(self.folder() / subfolder), trust_remote_code=self.trust_remote_code, **options
            )


def checked_device(function: str, device: Any) -> str | None:
    """Return the name of a device, which torch is asked for in the worker."""
    if device is None:
        return None
    kind, _, number = str(device).partition(":")
    if kind not in DEVICES or (":" in str(device) and not number.isdecimal()):
        raise InvalidArgumentError(
            f"{function}: device is one of {', '.join(DEVICES)}, or with a number such as 'cuda:1'; got {device!r}"
        )
    return str(device)


def resources_of(task: ModelTask) -> Resources:
    """Return what one worker with the model takes: a GPU where there is one, else a thread of the user's process.

    torch uses all cores from one thread and lets go of the GIL, so a second worker on the CPU would only be in its way.
    """
    options = task.options
    concurrency = options.get("concurrency")
    if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):
        raise InvalidArgumentError(f"{task.function}: concurrency is a whole number of workers; got {concurrency!r}")
    device = options.get("device")
    wants_gpu = has_gpu() if device is None else str(device).startswith("cuda")
    gpus = options.get("gpus", 1 if wants_gpu else 0)
    if gpus:
        return Resources(gpus=gpus, min_workers=concurrency or 1, max_workers=concurrency)
    if concurrency is None:
        return Resources(min_workers=1, max_workers=1, use_process=False)
    return Resources(min_workers=concurrency, max_workers=concurrency)


def batch_size_of(task: ModelTask, default: BatchSize = "auto") -> BatchSize:
    size = task.options.get("batch_size", default)
    if size not in ("auto", None) and (not isinstance(size, int) or size < 1):
        raise InvalidArgumentError(f"{task.function}: batch_size is a number of rows or 'auto'; got {size!r}")
    return size  # type: ignore[no-any-return]


def has_gpu() -> bool:
    """Return whether this machine has a GPU for CUDA, without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return False
    return any(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*"))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing bars and reports over ours while it loads."""
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Say which model it is that transformers cannot load; it says why, often at length."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as exc:
        raise RequestRefusedError(f"Model {name!r} cannot be loaded: {exc}") from exc


def text_width(config: Mapping[str, Any], name: str) -> int:
    """Return how many numbers a model has for a token, from its configuration; its families name it differently.

    >>> text_width({"model_type": "distilbert", "dim": 768}, "distilbert")
    768
    """
    for part in (config, config.get("text_config") or {}):
        for key in ("hidden_size", "d_model", "dim", "n_embd"):
            if isinstance(width := part.get(key), int):
                return width
    raise RequestRefusedError(f"The configuration of model {name!r} does not say how wide its vectors are.")
