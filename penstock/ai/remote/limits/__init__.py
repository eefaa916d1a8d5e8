"""Limits on the number and the rate of requests to a model."""
