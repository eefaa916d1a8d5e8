"""Structured output and tools.

formats       return_format: a pydantic model, a JSON schema or a type as OutputFormat
json_schemas  JSON schemas to column types and back    strict        schemas for OpenAI's strict mode
answers       the text of an answer to a value         validator     pydantic validators for JSON schemas
plain_values  validated values to plain ones           tools         Python functions that a model may call

It may import ``conversation`` and ``types``; pydantic is imported when it is first needed.
"""
