"""Results that are kept, so that no finished call is paid for twice.

keys          a hash of everything that determines a result
memo          look up many keys, compute the missing results once, store them: all that is cached goes through it
ordinals      tell equal random samples apart, and give each row of a resumed job its own again
shared_calls  calls in flight of all processes that share a ``cache_dir``
forks         resources that a forked child must release
ledger/       the log files on disk

It knows bytes, keys and rows; what a call is, and what a result means, its callers know. It may import ``config``,
``storage`` and ``events``.
"""
