"""A server for tests that speaks the APIs of OpenAI, Anthropic and Google, and fails by a script.

model_server.py    the handle for tests                server_runner.py   its thread or process
script.py          settings, as data or as text
faults.py, latency.py, rate_limits.py
http_server.py     connections, the log of requests    service.py         request to reply
answers.py         the text of an answer
apis/              the wire format of each API
"""

from penstock.testing import faults
from penstock.testing.apis.model_api import ModelRequest
from penstock.testing.http_server import Counts, SeenRequest
from penstock.testing.latency import Fixed, LogNormal, Uniform
from penstock.testing.model_server import ModelServer
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
