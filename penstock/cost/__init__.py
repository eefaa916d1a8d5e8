"""The cost of model calls: tokens, dollars, budgets.

usage        tokens of calls: reported, expected, estimated    prices       dollars of tokens, by provider and model
price_files  price lists of the user                           accounts     the calls of a query, added up by model
budget       reserve before a call is sent, settle after it

It may import ``config`` and ``storage``; it knows no provider's API.
"""
