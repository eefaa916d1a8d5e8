"""The innermost layer: one attempt to send a call."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import orjson

from penstock.ai.client.api_call import Answered, ApiCall
from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.http_request import ReceivedReply
from penstock.cost.usage import Usage, usage_in
from penstock.errors import ProviderError

LARGE_NBYTES = 128 * 2**10  # larger answers are received only if there is room for them


class SentCalls:
    """Sends each call once, and reads the answer."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._mean_nbytes = 0  # the mean size of recent answers
        self.close = client.close

    def ask(self, call: ApiCall) -> Coroutine[Any, Any, Answered]:
        # Runs for each row, so it returns the client's coroutine instead of wrapping it.
        client = self._client

        async def take(reply: ReceivedReply) -> tuple[Any, int | None]:
            nbytes = self._mean_nbytes if reply.nbytes is None else reply.nbytes
            if is_large := nbytes >= LARGE_NBYTES:
                await client.wait_for_room(nbytes)
                client.room.begin_receiving(nbytes)
            try:
                raw = await client.content(reply)
                self._mean_nbytes += (len(raw) - self._mean_nbytes) // 4
                try:
                    body = client.parsed(raw)
                except ProviderError:
                    call.observer.failed()
                    raise
                usage = usage_in(body)
                call.observer.answered(usage or Usage(call.tokens, 0))
                return client.understood(body, usage, call.read), None if usage is None else usage.input + usage.output
            finally:
                if is_large:
                    client.room.end_receiving(nbytes)

        data = orjson.dumps(call.body, option=orjson.OPT_SERIALIZE_NUMPY)
        return client.exchange(
            client.post(call.path), data, take, call.rank, tokens=call.tokens, observer=call.observer
        )
