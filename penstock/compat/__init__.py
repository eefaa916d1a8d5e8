"""Programs of Daft and Ray Data, under their own names: ``import penstock.compat.daft as daft``.

daft/        Daft's DataFrame, functions and reader names
ray/         ``ray.data`` and its datasets
translation  rename, reorder and refuse parameters
remedies     the names that are not here, each with the way around

The adapters rename and translate. They hold no engine code, and nothing below knows them.
"""
