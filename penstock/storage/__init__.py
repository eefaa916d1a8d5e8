"""Stores of bytes: local disks, http(s), S3, Google Cloud Storage, Azure, the Hugging Face hub.

``stores.open_store`` finds the store for a path, and ``File`` is one file for users. The package belongs to the lowest
layer, so that types, functions, readers and writers share one client per process.
"""
