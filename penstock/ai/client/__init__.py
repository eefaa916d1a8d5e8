"""One call of a remote model, as an onion: layers with the same ``ask(call)``, each around the next.

    CachedCalls                 an answer in the ledger? else ask, and store it
        RetriedCalls            repeat attempts until one is answered, or the failure is final
            BilledCalls         reserve the cost of an attempt, settle it; CountedCalls without a budget
                SentCalls       one attempt: a permit of the limiter, one POST, the body read

    CachedCalls                 with ``batch_api=True``
        BilledCalls             a call is one request of a batch
            BatchCalls          queued, submitted, polled

Billing is inside retrying, as each attempt may cost something. ``providers.remote_model`` puts the layers together.

calls            ApiCall, Endpoint, and the interface of a layer
sent_calls       -> http_client: one request; deadline, connections, addresses, server_errors
retried_calls    -> failed_attempts: the row's failure or the server's? server_check: one probe for all calls
                 crash_search: which call crashes the server?
billed_calls     -> cost.budget
cached_calls     -> cache.memo
silent_server    log lines about a server that does not answer
limits/          what may leave, and when
batch/           providers' batch APIs

It may import ``cost``, ``cache``, ``conversation`` and ``provider``; it knows no API of a provider.
"""
