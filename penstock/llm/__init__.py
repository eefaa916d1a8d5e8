"""Processors, with the names of Ray Data: rows to requests, answers to rows.

    config = OpenAIProcessorConfig(model="gpt-5-mini")
    processor = build_processor(config, preprocess=lambda row: {"prompt": row["text"]},
                                postprocess=lambda row: {"answer": row["generated_text"]})
    df = processor(df)

configs         the settings of each kind of processor
processor       the verbs of a DataFrame behind a processor
row_processing  the work on one row

It may import ``frame`` and everything below.
"""

from penstock.llm.configs import (
    HttpRequestProcessorConfig,
    OpenAIProcessorConfig,
    ProcessorConfig,
    TransformersProcessorConfig,
    vLLMEngineProcessorConfig,
)
from penstock.llm.processor import Processor, build_processor

build_llm_processor = build_processor

__all__ = [
    "HttpRequestProcessorConfig",
    "OpenAIProcessorConfig",
    "Processor",
    "ProcessorConfig",
    "TransformersProcessorConfig",
    "build_llm_processor",
    "build_processor",
    "vLLMEngineProcessorConfig",
]
