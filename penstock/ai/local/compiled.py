"""Compile a model while it runs, and switch over when the compiled layers are ready.

Only the repeated layers are compiled: they take nearly all of the time, and equal layers share their code, so compiling
takes seconds instead of minutes. The compiled model is a copy that shares the weights; the eager one goes on meanwhile.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.config import get_config

PAYS_AFTER_S = 5.0
"""Seconds of work after which compiling starts. The rows that are left are unknown, but long work tends to go on."""

BACKEND = "inductor"

SWITCH_S = 0.00001
"""The switch interval of Python while a thread compiles: the thread that feeds the GPU releases the GIL in thousands of
calls, and waits this long for it after each.
"""

CALLING_MODULES = threading.RLock()
"""Held while a thread calls modules, and while torch.fx traces: tracing replaces the calls of all modules in the
process.
"""


class CompiledLater:
    """Calls a model, and a copy with compiled layers once that is ready. Calls it in inference mode."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._eager = model.forward
        self._compiled: Any = None
        self._first: tuple[float, dict[str, Any]] | None = None
        self._lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def __call__(self, **inputs: Any) -> Any:
        if self._compiled is None:
            self._compile_if_it_pays(inputs)
            with CALLING_MODULES:
                return self._eager(**inputs)
        import torch

        with torch.compiler.set_stance("eager_on_recompile"):  # a batch of an odd shape does not wait for a compiler
            return self._compiled(**inputs)

    def _compile_if_it_pays(self, inputs: dict[str, Any]) -> None:
        with self._lock:
            if self._first is None:
                self._first = time.monotonic(), inputs
            began_s, first = self._first
            if self.thread is not None or time.monotonic() - began_s < PAYS_AFTER_S:
                return
            self.thread = threading.Thread(target=self._compile, args=(first, inputs), daemon=True)
        self.thread.start()

    def _compile(self, *batches: dict[str, Any]) -> None:
        """Compile by running batches of different sizes, so that the code takes any size."""
        import torch

        if cache_dir := get_config().cache_dir:
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(cache_dir) / "compiled"))
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            compiled = copy_with_same_weights(self._model)
            for layer in repeated_layers(compiled):
                layer.compile(dynamic=True, backend=BACKEND)
            with torch.inference_mode(), tracing_alone():
                for inputs in batches:
                    compiled(**inputs)
            self._compiled = compiled
        except Exception:  # a compiler fails in many ways; the eager model goes on
            logging.getLogger("penstock").warning("The model could not be compiled and runs as it is.", exc_info=True)
        finally:
            sys.setswitchinterval(switch_s)


@contextmanager
def tracing_alone() -> Iterator[None]:
    """Let torch.fx trace only while no other thread calls modules; the slow part of compiling is not tracing."""
    from torch.fx import Tracer

    trace = Tracer.trace

    def locked(*args: Any, **kwargs: Any) -> Any:
        with CALLING_MODULES:
            return trace(*args, **kwargs)

    Tracer.trace = locked
    try:
        yield
    finally:
        Tracer.trace = trace


def copy_with_same_weights(model: Any) -> Any:
    """Return a copy of a model that shares its weights and has its class's ``forward``."""
    weights = {id(weight): weight for weight in (*model.parameters(), *model.buffers())}
    found = copy.deepcopy(model, weights)
    found.__dict__.pop("forward", None)
    return found


def repeated_layers(model: Any) -> Any:
    """Return the list of layers that holds most of the weights."""
    from torch.nn import ModuleList

    lists = [module for module in model.modules() if isinstance(module, ModuleList)]
    return max(lists, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))
