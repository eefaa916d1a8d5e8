"""Measurements on a machine with a GPU; each script makes its own model and data, and needs no network."""
