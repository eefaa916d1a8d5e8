"""Let any room report to the running query, and ask it for permission. Nothing here knows who listens.

events        what the executor publishes, as data: stages, bundles, failed rows, samples
metrics       ``ps.metrics``: the user's own counters and gauges
call_counter  the calls of one stage while they run
call_gate     may a call start? A paused query closes the gate
call_room     is there room for one more answer?
cpu_clock     how long a thread has wanted a core
tracebacks    errors without the frames of this package

Imports ``errors``, ``config`` and ``types`` only.
"""
