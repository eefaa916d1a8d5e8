"""``ray.data.llm``: the processors of ``penstock.llm``, whose results are Datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.ray.data.dataset import Dataset
from penstock.compat.ray.data.resource_options import PLACEMENT, RESOURCES
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal
from penstock.llm import (
    HttpRequestProcessorConfig,
    Processor,
    ProcessorConfig,
    build_processor as _build_processor,
    vLLMEngineProcessorConfig,
)

_STAGES = (
    *("ChatTemplateStageConfig", "DetokenizeStageConfig", "HttpRequestStageConfig", "PrepareMultimodalStageConfig"),
    "TokenizerStageConfig",
)
__all__ = [
    "HttpRequestProcessorConfig", "Processor", "ProcessorConfig",
    "build_llm_processor", "build_processor", "vLLMEngineProcessorConfig", *_STAGES,
]  # fmt: skip


class StageConfig(dict[str, Any]):
    """Settings of one stage of a processor: ``enabled``, and the place where it runs, which Penstock ignores."""

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        for name, value in options.items():
            if name not in PLACEMENT | RESOURCES | {"batch_size"} and value is not None:
                raise refusal(f"{type(self).__name__}({name}=...)", "give it to the config of the processor")
        super().__init__(enabled=enabled)


for _name in _STAGES:
    globals()[_name] = type(_name, (StageConfig,), {"__module__": __name__})


def build_processor(
    config: Any, preprocess: Any = None, postprocess: Any = None, builder_kwargs: Any = None, **options: Any
) -> Callable[[Dataset], Dataset]:
    """Return a function from Dataset to Dataset that asks the model of ``config``."""
    if builder_kwargs:
        raise refusal(f"build_processor(builder_kwargs={builder_kwargs!r})", "give them to the config")
    processor = _build_processor(config, preprocess, postprocess, **options)
    return lambda dataset: Dataset(processor(dataset)._plan)


build_llm_processor = build_processor


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data.llm", name)
