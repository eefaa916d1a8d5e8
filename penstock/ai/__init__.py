"""AI functions: providers, their APIs, and everything around a call.

provider.py      the interface of providers and models       registry.py      providers by name
conversation.py  requests and answers of any provider        options.py       options of the AI functions
prompt.py        ``prompt`` in a worker                      exchange.py      one conversation: tools, validation
embed.py         embeddings of columns                       classify.py      labels for columns
cached_model.py  batch models with cached results            identity.py      identities for fingerprints of jobs

messages/        values of a row to a request
structured/      structured output and tools
remote/          OpenAI, Anthropic, Google and others: one HTTP client, wires/, limits/, batch/
local/           models on this machine, by transformers
"""
