"""The cost of model calls: tokens, dollars, budgets.

usage     tokens of calls: reported, expected, estimated
prices    dollars of tokens, by provider and model, from ``prices.json`` and from the user
accounts  the calls of a query, added up by model
budget    reserve before a call is sent, settle after it

It may import ``config``, ``errors`` and ``storage``; it knows no provider's API. On Ray the driver makes the calls, so
one budget holds for the whole query.
"""
