"""One call of a remote model, as an onion: layers with the same ``ask(call)``, each around the next.

    CachedCalls                 an answer in the ledger? else ask, and store it
        RetriedCalls            repeat attempts until one is answered, or the failure is final
            BilledCalls         reserve the cost of an attempt, settle it; CountedCalls without a budget
                SentCalls       one attempt: a permit of the limiter, one POST, the body read

    CachedCalls                 with ``batch_api=True``
        BilledCalls             a call is one request of a batch
            BatchCalls          queued, submitted, polled

``providers.remote_model`` puts the layers together. Read them from inside out:

api_call         ``ApiCall``, ``Endpoint``, and the interface of a layer
sent_calls       one attempt, by ``http_client``: http_request, connections, addresses, deadline, server_errors
billed_calls     pays from ``cost.budget``
retried_calls    repeats attempts, and sends one probe for all calls: ``failed_attempts`` decides whether a failure is
                 the row's or the server's, ``crash_search`` finds a call that crashes the server
cached_calls     keeps answers in ``cache.memo``
silent_server    log lines about a server that does not answer
limits/          how many requests may leave, and when
batch/           providers' batch APIs

The room may import ``cost``, ``cache``, ``conversation`` and ``provider``; it knows no provider's API.

Decisions
---------
- Billing is inside retrying, because each attempt may cost something.
- An outage never becomes a column of nulls: a 5xx, a time-out or a lost connection counts as the row's failure only if
  the server answered other requests.
"""
