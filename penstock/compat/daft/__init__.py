"""Adapter for programs of Daft: ``import penstock.compat.daft as daft``."""
