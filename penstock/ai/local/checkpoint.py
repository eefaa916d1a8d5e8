"""A model on disk, described by its name and how to load it. The worker loads it."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.ai.local import weights as local_weights
from penstock.ai.provider import ModelTask
from penstock.errors import InvalidArgumentError, PenstockError, RequestRefusedError, require_extra

DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu")
DTYPES = ("float32", "bfloat16", "float16", "auto")

SHARED = ("transformers.modeling_utils", "transformers.generation.utils")
RARELY_NEEDED = ("sklearn.metrics", "scipy.optimize")

TOKENIZER_FILES = ("tokenizer", "tokenization", "vocab", "spiece", "sentencepiece", ".tiktoken", ".model")
"""Parts of the names of files that tokenizers are read from."""

MAX_MESSAGE = 600
"""Characters of an error of transformers; a longer one is cut to its first line."""


@dataclass(frozen=True)
class Checkpoint:
    """A ``dtype`` of None means float32 on a CPU and the fastest 16-bit type on a GPU; ``auto`` means the type of the
    weights.

    ``precision`` is None or ``int8``, for products of 8-bit numbers on a CPU.
    ``compile`` tells whether text models compile their layers while they run; None means on a GPU.
    """

    name: str
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    attn_implementation: str | None = None
    has_small_matrices: bool = False
    compile: bool | None = None
    precision: str | None = None

    @staticmethod
    def of(name: str, task: ModelTask) -> Checkpoint:
        """Return the checkpoint that a task names, with the task's options for loading it."""
        extra = "local" if name == local_weights.MINILM else "transformers"
        for package in ("torch", "transformers"):
            require_extra(package, extra, f"{task.function} with provider 'transformers'")
        options = task.options
        if (dtype := options.get("dtype")) is not None and dtype not in DTYPES:
            raise InvalidArgumentError(f"{task.function}: dtype is one of {', '.join(DTYPES)}; got {dtype!r}")
        device = checked_device(task.function, options.get("device"))
        if (precision := options.get("precision")) not in (None, "int8"):
            raise InvalidArgumentError(f"{task.function}: precision is 'int8' or left out; got {precision!r}")
        if precision and (device != "cpu" if device else local_weights.has_gpu()):
            raise InvalidArgumentError(f"{task.function}: precision='int8' is for CPUs; pass device='cpu'")
        return Checkpoint(
            name,
            options.get("revision"),
            device,
            dtype,
            bool(options.get("trust_remote_code", False)),
            options.get("attn_implementation"),
            compile=options.get("compile"),
            precision=precision,
        )

    def for_vectors(self) -> Checkpoint:
        """Return the checkpoint with matrices in bfloat16 by default, if the CPU multiplies these several times faster.

        The rest of the model stays in float32. The cosine between its vectors and the vectors in float32 is above
        0.999.
        """
        is_default = self.dtype is None and not local_weights.has_gpu() and self.device in (None, "cpu")
        is_default = is_default and self.precision is None
        return replace(self, has_small_matrices=is_default and local_weights.has_fast_bfloat16())

    def read_json(self, path: str) -> Any | None:
        return local_weights.read_json(self.name, path, self.revision)

    def config(self, subfolder: str = "") -> dict[str, Any]:
        """Return the content of ``config.json``."""
        if (config := self.read_json(f"{subfolder}/config.json".lstrip("/"))) is None:
            raise RequestRefusedError(f"Model {self.name!r} has no config.json, so transformers cannot load it.")
        return dict(config)

    def load_config(self) -> dict[str, Any]:
        """Return the configuration with the defaults of its family. Imports transformers."""
        import transformers

        with quiet(), naming_model(self.name):
            config = self.config()
            full: dict[str, Any] = transformers.AutoConfig.for_model(config.pop("model_type"), **config).to_dict()
            return full

    def identity(self) -> dict[str, Any]:
        """Return the facts that determine the results: files, data type and attention. Loads nothing.

        The 16-bit type of a GPU is unknown without torch; all current GPUs choose the same one.
        """
        is_gpu = local_weights.has_gpu() if self.device is None else not self.device.startswith("cpu")
        return {
            "weights": local_weights.fingerprint(self.name, self.revision),
            "dtype": self.precision
            or self.dtype
            or ("16 bits" if is_gpu else "mixed" if self.has_small_matrices else "float32"),
            "attention": self.attn_implementation,
        }

    def folder(self) -> Path:
        return local_weights.weights_folder(self.name, self.revision)

    def warm_up(self) -> None:
        """Let the disk read the weights and a GPU start, while this thread imports transformers."""
        local_weights.read_ahead(self.folder())
        import torch

        if (device := self.torch_device()).type == "cuda":
            threading.Thread(target=lambda: torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))).start()

    def torch_device(self) -> Any:
        """Return the given device, else a GPU if this process sees one."""
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

    def dtype_name(self, config: Mapping[str, Any]) -> str | None:
        """Return the given type; for ``auto`` the type in the configuration, whose key depends on the version of
        transformers.
        """
        if self.dtype != "auto":
            return self.dtype
        return str(config.get("dtype") or config.get("torch_dtype") or "float32")

    def load(self, auto_class: str, subfolder: str = "", *, attention: str | None = None) -> Any:
        """Return the weights as the named class of transformers, on the device, ready for inference.

        ``attention`` is the name of an attention function, by default the one that the user chose, if any.
        """
        import_transformers()
        options: dict[str, Any] = {"dtype": self.torch_dtype()}
        if (attention := attention or self.attn_implementation) is not None:
            options["attn_implementation"] = attention
        model = self.from_pretrained(auto_class, subfolder, **options).to(self.torch_device()).eval()
        if self.has_small_matrices:
            import torch

            for layer in model.modules():
                if isinstance(layer, torch.nn.Linear):
                    layer.to(torch.bfloat16)
            model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
        return model

    def from_pretrained(self, auto_class: str, subfolder: str = "", **options: Any) -> Any:
        """Return an object of a class of transformers: weights, a tokenizer or a processor."""
        import transformers

        with quiet(), naming_model(self.name):
            return getattr(transformers, auto_class).from_pretrained(
                str(self.folder() / subfolder), trust_remote_code=self.trust_remote_code, **options
            )

    def tokenizer(self, subfolder: str = "") -> Any:
        """Return the tokenizer. transformers makes an empty one for some models whose folder has none."""
        folder = self.folder() / subfolder
        has_file = any(name in file.name for file in folder.glob("*") for name in TOKENIZER_FILES)
        found = self.from_pretrained("AutoTokenizer", subfolder) if has_file else None
        if found is None or len(found) <= len(found.all_special_ids):
            raise RequestRefusedError(
                f"Model {self.name!r} has no tokenizer: {str(folder)!r} has no vocabulary such as tokenizer.json. "
                "Save it there with tokenizer.save_pretrained(FOLDER), or use a model that takes text."
            )
        return found


def checked_device(function: str, device: Any) -> str | None:
    """Return the name of a device; the worker asks torch for it."""
    if device is None:
        return None
    kind, _, number = str(device).partition(":")
    if kind not in DEVICES or (":" in str(device) and not number.isdecimal()):
        raise InvalidArgumentError(
            f"{function}: device is one of {', '.join(DEVICES)}, or with a number such as 'cuda:1'; got {device!r}"
        )
    return str(device)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the progress bars and reports of transformers."""
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
def naming_model(name: str) -> Iterator[None]:
    """Add the name of the model to an error of transformers, of which some list hundreds of classes."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as exc:
        text = str(exc) if len(str(exc)) <= MAX_MESSAGE else str(exc).splitlines()[0]
        raise RequestRefusedError(f"Model {name!r} cannot be loaded: {type(exc).__name__}: {text}") from exc


def import_transformers() -> None:
    """Import what all models of transformers share, without the large packages that they rarely need.

    transformers imports scikit-learn for assisted generation and SciPy for training object detectors: one function of
    each, for a quarter of the time that an encoder takes to start. Here their first call imports them.
    """
    with functions_imported_later(*RARELY_NEEDED):
        for name in SHARED:
            importlib.import_module(name)


@contextlib.contextmanager
def functions_imported_later(*names: str) -> Iterator[None]:
    """Let ``from NAME import function`` import the named module when the function is first called."""
    stand_ins = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


class _StandIn(ModuleType):
    """A module whose attributes are functions that import the real module when they are called.

    Who still holds it when the real module may be imported gets the attributes of that one.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def real() -> Any:
            return getattr(importlib.import_module(self.__name__), name)

        if sys.modules.get(self.__name__) is not self:
            return real()
        return lambda *args, **kwargs: real()(*args, **kwargs)
