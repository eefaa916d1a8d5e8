"""The estimated cost of a query, from a sample of its rows: ``DataFrame.plan_cost``."""
