"""A durable log of finished calls: a folder of log files, one for each process that writes.

store         open_ledger: get, put, flush, close; sees the writes of other processes; a thread syncs every 50 ms
index         the place of the value of each key, in sorted arrays
segment       one log file with its index: load, append, repair
record        the layout of a record in a file, compression, and the search for records after damage
layered       a job's own ledger over a shared one
open_ledgers  the ledgers of this process, of the current job and of ``cache_dir``
maintenance   stats, clear and prune, which also runs by itself

It may import what ``cache`` may.

A ``put`` writes the value into the log at once, which survives ``kill -9``; the sync is for power cuts. Answers of one
turn of the event loop are put in one write. Why not SQLite: logs take 1.5 times the appends, each value has a checksum,
and writers never wait for each other.
"""

from penstock.cache.keys import key_of
from penstock.cache.ledger.layered import LayeredLedger
from penstock.cache.ledger.store import FileLedger, open_ledger

__all__ = ["FileLedger", "LayeredLedger", "key_of", "open_ledger"]
