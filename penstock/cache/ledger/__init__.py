"""A durable log of finished calls, so that no call is paid for twice.

store         open_ledger: get, put, flush, close; sees the writes of other processes
group_commit  the thread that makes all new values durable together, every 50 ms
index         the place of the value of each key
segment       one log file with its index: load, append, repair
record        the layout of a record in a file, compression, and the search for records after damage
layered       a job's own ledger over a shared one
open_ledgers  the ledgers of this process, and those of the current job and ``cache_dir``
maintenance   stats, prune (also automatic), clear
"""

from penstock.cache.keys import key_of
from penstock.cache.ledger.layered import LayeredLedger
from penstock.cache.ledger.store import FileLedger, open_ledger

__all__ = ["FileLedger", "LayeredLedger", "key_of", "open_ledger"]
