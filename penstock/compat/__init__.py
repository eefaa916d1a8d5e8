"""Programs of Daft and Ray Data, under their own names: ``import penstock.compat.daft as daft``.

translation  rename, reorder and refuse parameters
remedies     the names that are not here, each with the way around
daft/        Daft's DataFrame, functions and reader names
ray/         ``ray.data`` and its datasets

The adapters rename and translate. They hold no engine code and may import everything; nothing imports them.
"""
