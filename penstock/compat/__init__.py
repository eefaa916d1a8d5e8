"""Adapters for programs of other systems: a module each, with the names and parameters of that system."""
