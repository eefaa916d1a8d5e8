"""Where bytes lie: local disks, http(s), S3, Google Cloud Storage, Azure, the Hugging Face hub.

``stores.open_store`` finds the store for a path, and ``File`` is one file in a user's hands. It is a part of the lowest
layer, so that types, functions, readers and writers share one client a process.
"""
