"""Penstock beside Daft, Ray Data and a hand-written loop: `make bench`, or `python -m benchmarks.run --help`."""
