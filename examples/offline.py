"""Stands in for a model provider, so that the examples run without a key and without a network.

The answers come from rules and not from a model. With OPENAI_API_KEY set, `connect` does nothing and the examples ask
OpenAI.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import re
import sys
from typing import Any

import cloudpickle

from penstock.testing import ModelServer
from penstock.testing.answer_text import default_answer

COMPLAINTS = re.compile(
    r"(handle came loose|handle gets far too hot|food sticks|coating is already peeling|wakes the house"
    r"|smells of burning|leaked|seams let water in|bulky|never fits back|zip jammed|fabric tore|flat by noon"
    r"|stopped charging|drops the connection|app crashes|casing creaks|buttons is already dead|scratched"
    r"|nothing like the pictures|screws were missing|instructions make no sense|wobbles|broke within a fortnight)"
)


def connect(**settings: Any) -> ModelServer | None:
    """Use OpenAI if there is a key, else start a server on this machine that speaks its API, and return it."""
    if os.environ.get("OPENAI_API_KEY"):
        return None
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the server is a process of its own
    server = ModelServer(**{"answer": answer, "latency": 0.05, **settings}).start()
    atexit.register(server.stop)
    os.environ |= {"OPENAI_API_KEY": "test", "OPENAI_BASE_URL": server.openai_url}
    return server


def answer(request: Any) -> Any:
    """Answer a request by rules about its text, its images or its sound."""
    if request.schema is not None:
        return structured(request)
    if pictures := re.findall(r"data:image/\w+;base64,([A-Za-z0-9+/=]+)", json.dumps(request.body)):
        return " ".join(map(caption, pictures))
    if sounds := re.findall(r'"data": "([A-Za-z0-9+/=]{100,})"', json.dumps(request.body)):
        return f"(a tone of {len(base64.b64decode(sounds[0])) / 32_000:.1f} seconds)"
    if context := re.search(r"Context:\n(.*)\n\nQuestion: (.*)", request.text, re.DOTALL):
        return best_sentence(*context.groups())
    if re.search(r"\bhappy\b", request.text):
        return "no" if COMPLAINTS.search(request.text) else "yes"
    if match := re.match(r"(?:Summarise|Shorten)[^:]*: (.*)", request.text, re.DOTALL):
        words = match[1].split()
        return " ".join(words[: 8 if "mini" in request.model else 14]) + " ..."
    return default_answer(request)


def structured(request: Any) -> Any:
    """Return an object with what the text says, where a field has a name that the rules know."""
    fields = json.loads(default_answer(request))
    if not isinstance(fields, dict):
        return fields
    complaints = COMPLAINTS.findall(request.text)
    known = {
        "complaints": complaints,
        "happy": not complaints,
        "sentiment": "negative" if complaints else "positive",
        "winner": "B" if request.text.count("B:") and len(request.text.split("B:")[1]) > 80 else "A",
        "reason": "it keeps more of the review",
    }
    return {name: known.get(name, value) for name, value in fields.items()}


def best_sentence(context: str, question: str) -> str:
    """Return the sentence of the context that shares most words with the question."""
    asked = {word.lower().rstrip("?s") for word in question.split() if len(word) > 3}
    sentences = re.split(r"(?<=\.)\s+", context)
    return max(sentences, key=lambda text: len(asked & {word.lower().rstrip(".,s") for word in text.split()}))


def caption(picture: str) -> str:
    """Describe a picture by the colours of its upper and lower half."""
    import io

    import numpy as np
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").resize((1, 2))
    above, below = (colour(*np.asarray(image)[row, 0].tolist()) for row in (0, 1))
    return f"A picture that is {above} above and {below} below."


def colour(red: int, green: int, blue: int) -> str:
    if max(red, green, blue) - min(red, green, blue) < 25:
        return "dark" if red < 90 else "grey" if red < 190 else "white"
    return max((red, "red"), (green, "green"), (blue, "blue"))[1]
