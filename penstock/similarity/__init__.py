"""Compare vectors and texts in NumPy, or with torch on a GPU: ``nearest``, ``dedup_near``, ``dedup_minhash``.

best_rows        the rows with the best scores for each query, block by block
nearest          ``NearestHandler``: holds the queries, streams the other rows through
near_duplicates  ``DropNearHandler``: compares each row with the rows it has kept
similar_texts    ``DropSimilarHandler``: groups rows with similar MinHash signatures

The plan nodes are in ``plan/similarity.py``. The room may import ``relational`` and what is below it.
"""
