"""One file a workload; `benchmarks.workload.load` says what such a file holds."""
