"""A server for tests that speaks the APIs of OpenAI, Anthropic, Google and System One, and fails by a script.

model_server   the handle for tests
script         settings, as data
faults, answer_times, rate_limits    what goes wrong; how long answers take; token buckets
server_runner  run the server on a thread or in a process of its own
http_server    connections, and the log of requests
service        from a request to its reply
answer_text    the text of an answer
apis/          the wire format of each API

``python -m penstock.testing`` serves from a command line. The room may import one function of ``engine`` that starts
processes.
"""

from penstock.testing import faults
from penstock.testing.answer_times import Fixed, LogNormal, Uniform
from penstock.testing.apis.model_api import ModelRequest
from penstock.testing.http_server import Counts, SeenRequest
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
