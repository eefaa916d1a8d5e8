"""Let any room report to the running query, and ask it for permission. Nothing here knows who listens.

events        data that the executor publishes: stages, bundles, failed rows, samples
metrics       ``ps.metrics``: the user's own counters and gauges
call_counter  the calls of one stage while they run
call_gate     may a call start? A paused query closes the gate
call_room     is there room for one more answer?
latency       percentiles of durations, from few counts
loop_thread   an event loop on a thread of its own
cpu_clock     how long a thread has wanted a core
tracebacks    errors without the frames of this package

It imports ``errors``, ``config`` and ``types`` only.

Decisions
---------
- A pause closes the query's gate. Callers look at it before each row, and the HTTP client after each permit, which it
  returns unused. So requests that wait in a limiter shared with other queries stop too, and the other queries go on.
- An error or Ctrl-C shuts the gate for good. The executor then waits for running calls whose answers a ledger keeps.
- All answers that a stage of calls holds or receives stay within an eighth of the memory budget (``call_room``).
  Beyond it no call starts and no large body is read, except for the first row, which the others wait for. A time
  limit does not run while an answer waits for room.
"""
