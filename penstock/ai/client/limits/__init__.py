"""Decide when a request may be sent to a model, from the user's caps and from what the server takes.

limiter           one queue for each model, shared by all queries of the process
pace              ``Pace``: the decision, without clock, thread or event loop; it asks the parts below
caps, quota       the user's caps on requests and tokens, and what rate-limit headers leave
concurrency       how many requests at once
cohort            latency against the number in flight
slots, send_rate  what refusals teach: how many at once, how many a second
alarm             tells a limit of the server from failures by chance
rate_headers      what headers of responses say about limits
embedding_limits  how long the texts of an embedding call may be

It imports ``cost.usage``, ``events`` and ``errors``. ``tests/ai/simulation.py`` runs the decisions on a virtual clock.

Decisions
---------
- Concurrency starts at 64, or at 6 if the address has no TLS (such a server may have few slots and a queue). It doubles
  while throughput grows with it.
- If latency grows as the number in flight does, requests only wait in the server's queue. Then the limit is
  halved until throughput falls too, settles half as much above that, and tries more every 32 rounds.
- Time-outs halve the limit. Other 5xx stop its growth.
- Refusals (429, 503, 529) lower it to the requests that the server accepted, its *slots*; single requests probe for
  more. After a refused probe the client leaves a tenth of the slots free for a moment, so that clients that share a
  server approach equal parts.
- Refusals that do not depend on the number in flight are about time and set a *rate*: what the server accepted in the
  last second less 4 %, then growing until the next refusals. Concurrency is too coarse for this: 300 requests a second
  at 50 ms are only 15 at once.
- Refusals that three cuts do not end are noise. From then on only more than twice that share counts.
- Retries leave before calls that were never sent, so that no task waits for one row.
- Of what headers allow until their reset, half may leave at once and the rest evenly. A wait of more than ten minutes
  fails with the time to come back.
- On Ray the driver makes the calls, so one limiter holds for the whole query.
"""
