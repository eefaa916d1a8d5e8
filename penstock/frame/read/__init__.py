"""Make a DataFrame: a file for each kind of origin."""
