"""Queries on Ray: workers are actors, and a bundle is a reference to a batch in Ray's object store.

runner          connect to a cluster, choose the actors of each stage
cluster, node_fit, node_memory    the nodes, who fits on them, what they have reserved
stage_requests  what the stages ask Ray for
actors, actor_group, worker       the actors of a stage; lent to tasks; the classes that run there
pool, replay_pool, failures       run tasks, start them again, tell deaths apart
stored          a batch with its recipe: recompute it if its node is lost
exchange, exchange_pool, exchange_work    relations that exceed one node's memory
engines, ledgers, blocks          inference engines; the driver's ledgers; results for Ray Data

An actor keeps a generator between two outputs without holding a core, as a resting task should. A Ray streaming
generator under back-pressure keeps its core, so enough of them would leave none for the stages that drain them. The
driver owns the objects that an actor returns, so they outlive the actor. Only this room imports ``ray``.
"""

from __future__ import annotations

from penstock.errors import MissingExtraError

try:
    import ray as ray
except ImportError as exc:
    raise MissingExtraError("ray", "ray", "The Ray runner") from exc
