"""AI functions: providers, their APIs, and everything around a call.

provider.py      the interface of providers and models       registry.py      providers by name
conversation.py  requests and answers of any provider        options.py       options of the AI functions
prompt.py        ``prompt`` in a worker                      exchange.py      one conversation: tools, validation
embed.py         embeddings of columns                       classify.py      labels for columns
cached_model.py  batch models with cached results            identity.py      identities for fingerprints of jobs
wire.py          the interface of a provider's API: the body of a request, the answers in a body

messages/        values of a row to a request
structured/      structured output and tools
client/          one attempt, retries, billing, cache; limits/, batch/
providers/       OpenAI, Anthropic, Google and others: wire, defaults, batch API
local/           models on this machine, by transformers
"""
