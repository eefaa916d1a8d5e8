"""Make a DataFrame.

files     from files: Parquet, CSV, JSON, text, images, any bytes
media     from audio, video and PDF files
tables    from databases, Lance, Delta Lake, Iceberg, Hugging Face, WebDataset, NumPy, torch, Ray
memory    from data in memory, a range, or a custom source; torch_items makes the rows of a torch dataset
by_extension  from files, by the extension of their names

A reader imports its format or library when it is first called. The room may import what ``frame`` may.
"""
