"""Calls by a provider's batch API: gathered, submitted in large files, polled, and read when they are done."""
