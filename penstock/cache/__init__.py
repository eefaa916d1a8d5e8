"""Results that are kept, so that Penstock never pays twice for a finished call.

keys          a hash of everything that determines a result
memo          look up many keys, compute the missing results once, store them: everything cached goes through it
ordinals      tell equal random samples apart, and give each row of a resumed job its own again
shared_calls  calls in flight of all processes that share a ``cache_dir``
forks         resources that a forked child must release
ledger/       the log files on disk

The room knows bytes, keys and rows; its callers know what a call is and what a result means. It may import
``storage``, ``events`` and the modules at the top.

Decisions
---------
- An answer is keyed by everything that determines it. The schema is not part of the key, so another schema reads the
  same answer.
- Equal requests at temperature 0 are made once. Random samples carry an ordinal.
- Processes share calls by appending records to one file, whose order decides who makes a call. So no process waits for
  a lock, and a dead process holds nothing: its process id is gone, or it stops writing. Looking into the ledger before
  each call would not do, because processes in step have the same calls in flight.
"""
