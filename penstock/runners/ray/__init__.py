"""Queries on Ray: workers are actors, and a bundle is a reference to a batch in Ray's object store.

An actor keeps a generator between two outputs without holding a core, as a resting task should. A Ray streaming
generator under back-pressure keeps its core, so enough of them would leave none for the stages that drain them. The
driver owns the objects that an actor returns, so they outlive the actor.
"""

from __future__ import annotations

from penstock.errors import MissingExtraError

try:
    import ray as ray
except ImportError as exc:
    raise MissingExtraError("ray", "ray", "The Ray runner") from exc
