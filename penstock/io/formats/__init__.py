"""One module for each file format: a ``FileFormat`` to scan it, a ``FileEncoding`` to write it.

parquet       a task reads a run of row groups
row_groups    choose row groups by the statistics in the footer
parquet_sql   decide whether DuckDB may read Parquet files by itself
csv, json, text    ``lines`` reads blocks of whole lines, ``json_values`` converts values
images, audio_video    one row a file, or one row a frame
numpy, webdataset    .npy files; tar files of samples

Listing, hive partitions, corrupt files and staging are shared: ``io/file_source.py`` and ``io/writer.py``. A format may
import what ``io`` may.
"""
