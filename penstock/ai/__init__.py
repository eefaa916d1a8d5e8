"""Models as functions of columns: providers, their wire protocols, and what surrounds a call.

provider.py      what a provider is, and what it hands out          registry.py   which one a name means
conversation.py  a request and an answer, whoever is asked          messages.py   from column values to turns, with
                                                                    attachments.py, dialogue.py
prompting.py     one row: ask, run tools, check, ask again          tools.py      functions that a model may call
structured.py    the form of an answer: its column, its schema      answers.py    from what was written to plain values
json_schemas.py  JSON schemas as types, and back                    strict.py     as OpenAI's strict mode wants them
embedding.py     many texts packed into one request                 classifying.py
http.py          one pooled client; retries, errors                 limiter.py    how many, how fast
wire.py          how an API is spoken; bodies.py: what wires do alike
openai.py anthropic.py google.py transformers.py ...                one file a provider
checkpoint.py    a model on disk; text_encoder.py, zero_shot.py, vision.py, generation.py: running one
"""
