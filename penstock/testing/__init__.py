"""A server for tests that speaks the APIs of OpenAI, Anthropic and Google, and fails as it is told to.

`exchange`        what the APIs have in common;  `openai_api`, `anthropic_api`, `google_api`, `embeddings`: each of them
`faults`          what goes wrong, as data;  `latency`, `script` (all of it);  `notation` (the same as text)
`files`, `batches`, `message_batches`, `batch_work`: uploads and batches
`service`         request -> reply;  `picking` which fault, `admission` which limit, `answering` which text
`server`          connections;  `http1` bytes to requests;  `recording` what was seen
`model_server`    the handle for tests;  `serving`, `__main__` the other end of it
"""

from penstock.testing import faults
from penstock.testing.apis.exchange import ModelRequest
from penstock.testing.latency import Fixed, LogNormal, Uniform
from penstock.testing.model_server import ModelServer
from penstock.testing.recording import Counts, SeenRequest
from penstock.testing.script import BatchTiming, EmbeddingLimits, Limits, Script

__all__ = [
    "BatchTiming",
    "Counts",
    "EmbeddingLimits",
    "Fixed",
    "Limits",
    "LogNormal",
    "ModelRequest",
    "ModelServer",
    "Script",
    "SeenRequest",
    "Uniform",
    "faults",
]
