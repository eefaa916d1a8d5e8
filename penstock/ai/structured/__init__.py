"""Structured output and tools.

return_formats  ``return_format``: a pydantic model, a JSON schema or a type as ``OutputFormat``
json_schemas    check JSON schemas; column types to JSON schemas
strict          rewrite schemas for OpenAI's strict mode
answers         the text of an answer to a value: find the JSON, validate it
validator       JSON schemas to column types and validators of pydantic
plain_values    validated values to plain ones
tools           Python functions that a model may call

It may import ``conversation``, ``lenient_json``, ``types``, ``udf`` and the modules at the top. It imports pydantic
when a query first needs it.
"""
