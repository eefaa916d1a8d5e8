"""``ask``: whether a statement is true of each row, answered by one model.

statements   a template and its yes or no

The room may import ``decisions`` and everything below it.
"""
