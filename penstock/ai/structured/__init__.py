"""The form an answer must have, and functions that a model may call."""
