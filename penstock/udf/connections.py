"""Connections that a user's client leaves behind when its worker ends."""

from __future__ import annotations

import asyncio


async def close_connections() -> None:
    """Close what is still connected on the running loop, which must be about to end.

    Async clients keep connections for their next call and close them when they are told to, which a class without
    ``close`` never does. Sockets without a loop would stay open until the garbage collector finds them. Other
    loops than asyncio's own, which has no public list of its transports, are left as they are.
    """
    for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn
