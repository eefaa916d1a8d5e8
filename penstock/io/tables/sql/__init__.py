"""SQL databases: PostgreSQL through ADBC, which speaks Arrow, all others through SQLAlchemy.

database_spec  a database as data: a URL or a function that connects, with hidden credentials
driver         ``Session``, the interface to a driver: one open connection
adbc, alchemy, dbapi    the three drivers
source         read the result of a query
sink           stage the rows, then show all of them in one transaction

It may import what ``io`` may.
"""
