"""Batch APIs of providers: calls are queued, submitted in large batches, polled, and their results read.

calls.py    the interface: ``BatchCalls.ask``          queue.py       when to submit, and how many calls
service.py  what a provider's API must offer           submission.py  a submitted batch, and polling
records.py  what the ledger stores of batches          client.py      HTTP requests of batch APIs
"""
