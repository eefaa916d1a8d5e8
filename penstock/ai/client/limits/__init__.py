"""Decide when a request may be sent to a model, from the user's caps and from what the server takes.

limiter        one queue for each model, shared by all queries of the process
pacing         Pace: the decision, without clock, thread or event loop; it asks the parts below
quota, caps    the user's caps on requests and tokens, and what rate-limit headers leave
concurrency    how many requests at once: cohort measures latency against the number in flight
slots, send_rate   what refusals teach: how many at once, how many a second
alarm          tells a limit of the server from failures by chance
rate_headers, inputs   what responses say about limits
"""
