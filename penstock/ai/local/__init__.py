"""Models that run on this machine, by transformers."""
