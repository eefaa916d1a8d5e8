"""Processors: rows to requests, requests to a model, answers to rows, under the names of Ray Data.

    config = OpenAIProcessorConfig(model="gpt-5-mini")
    processor = build_processor(config, preprocess=lambda row: {"prompt": row["text"]},
                                postprocess=lambda row: {"answer": row["generated_text"]})
    df = processor(df)

configs.py    what is asked, and how                processor.py   preprocess, ask, postprocess: verbs of a DataFrame
asking.py     what the workers do with a row
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
