"""Rows of jobs and queries: read, searched, sorted, and shown a page at a time.

cells, prompts  values of rows as the page shows them; the prompts of rows, rendered as they were sent
facets          columns and their fields: filters, sort keys, distributions
found_rows      rows that were found for a page
row_search      the numbers of the rows that a person asks for
pages           pages of the rows of a job
parquet_rows    rows of a Parquet file by their numbers
counterparts    the rows of another job beside them
export          selected rows as a file
"""
