"""Functions that make a DataFrame, one module for each kind of source."""
