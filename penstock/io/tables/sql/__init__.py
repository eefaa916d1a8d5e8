"""SQL databases: PostgreSQL and SQLite through ADBC, which speaks Arrow, all others through SQLAlchemy."""
