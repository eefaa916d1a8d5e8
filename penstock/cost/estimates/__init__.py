"""What a query will cost, found out on a sample of its rows: ``DataFrame.plan_cost``."""
