"""Queries on Ray: workers are actors, and a bundle is a reference to a batch in Ray's object store.

runner          connect to a cluster, choose the actors of each stage
cluster, node_memory    the nodes, and what they have reserved
stage_requests  what the stages ask Ray for
actors, actor_group, worker       the actors of a stage; lent to tasks; the classes that run there
pool, failures                    run tasks, start them again, tell deaths apart
stored          a batch with its recipe: recompute it if its node is lost
shuffle, shuffle_pool, shuffle_work    relations that exceed one node's memory
engines                           inference engines

An actor keeps a generator between two outputs without holding a core, as a resting task should. A Ray streaming
generator under back-pressure keeps its core, so enough of them would leave none for the stages that drain them. The
driver owns the objects that an actor returns, so they outlive the actor. Only this room imports ``ray``.

Decisions
---------
- A bundle has a recipe: the task that made the batch, and the recipes of its inputs. If a node is lost, Penstock
  recomputes the batches that it still needs, back to the read if necessary. Ray's own reconstruction cannot do that,
  because the state of an actor has moved on.
- The worker of a function writes a large output itself. The number of its first row puts its files in order.
- A relation runs in the driver's process. One that outgrows its memory is divided by its keys, and the workers of the
  other stages compute the parts; rows are aggregated before they move.
- What needs state runs in the driver's process too: a sink that needs one writer, or that has no parts.
- The driver calls async functions that ask for no resources: they wait, and do not compute. So one limiter, one budget
  and one ledger hold for the remote models of its queries.
"""

from __future__ import annotations

from penstock.errors import MissingExtraError

try:
    import ray as ray
except ImportError as exc:
    raise MissingExtraError("ray", "ray", "The Ray runner") from exc
