"""``ray.data.llm``: the processors of ``penstock.llm``, whose results are Datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.ray.data.dataset import Dataset
from penstock.llm import (
    HttpRequestProcessorConfig,
    build_processor as _build_processor,
    vLLMEngineProcessorConfig,
)

__all__ = ["HttpRequestProcessorConfig", "build_llm_processor", "build_processor", "vLLMEngineProcessorConfig"]


def build_processor(config: Any, **options: Any) -> Callable[[Dataset], Dataset]:
    """Return a function from Dataset to Dataset that asks the model of ``config``."""
    processor = _build_processor(config, **options)
    return lambda dataset: Dataset(processor(dataset)._plan)


build_llm_processor = build_processor
