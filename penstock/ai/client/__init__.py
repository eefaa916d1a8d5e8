"""Calls of remote models: one attempt, retries, billing, cache."""
