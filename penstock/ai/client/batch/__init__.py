"""Batch APIs of providers: calls are queued, submitted in large batches, polled, and their results read.

calls.py    the interface: ``BatchCalls.ask``             queue.py    waiting calls, submitted batches, polling
service.py  the interface of a provider's batch API     records.py  records of batches in the ledger
"""
