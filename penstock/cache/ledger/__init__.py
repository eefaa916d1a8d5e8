"""A durable log of finished calls, so that nothing is paid for twice.

keys        key_of: what determines an answer -> 16 bytes
store       open_ledger: get, put, flush, close; finds what other processes write
committing  the thread that writes what was put, all at once, every 50 ms
tail        what was put since, in the system's memory: it outlives a process that is killed
index       where the value of a key is
segment     one log file with its index: load, append, repair
record      how a record lies in a file, and how it is found again behind damage
compression  of large values
salvage     opening files that are damaged
layered     a job's own ledger over a shared one
upkeep      stats, prune, clear, verify
"""

from penstock.cache.keys import key_of
from penstock.cache.ledger.layered import LayeredLedger
from penstock.cache.ledger.store import FileLedger, open_ledger

__all__ = ["FileLedger", "LayeredLedger", "key_of", "open_ledger"]
