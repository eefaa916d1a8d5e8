"""Structured output and tools: schemas, validation of answers, functions that a model may call."""
