"""Estimate the cost of a query from a sample of its rows: ``DataFrame.plan_cost``.

plan_cost      run the sample and count its calls
sample         sample the rows that functions receive, and count all of them
extrapolation  project the sample to all rows: the mean and its standard error
estimate       the result, as figures for programs and a table for people

It runs queries, and may therefore import ``runners`` and everything below.
"""
