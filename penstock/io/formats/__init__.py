"""One module for each file format: a ``FileFormat`` to scan it, a ``FileEncoding`` to write it.

parquet, row_groups    runs of row groups, chosen by the statistics of the footer
csv, json, text        ``lines`` reads blocks of whole lines, ``json_values`` converts values
images, audio_video    one row a file, or one row a frame
numpy, orc, webdataset

Listing, hive partitions, corrupt files and staging are shared: ``io/file_source.py`` and ``io/writer.py``.
"""
