"""Calls through a provider's batch API: half the price, answers within a day.

batch_calls    the layer: ``ask`` waits while calls are queued, submitted and polled
batch_queue    waiting calls, and submitted batches; pure decisions about when to submit and poll
batch_records  records of batches in the ledger, so that another process finds them
batch_service  the interface of a provider's batch API, and the client that sends its requests

It may import what ``client`` may; ``providers`` has the batch API of each provider.
"""
