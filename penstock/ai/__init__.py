"""Models as functions of columns: providers, their wire protocols, and everything around a call.

provider.py      the contract of providers and models        registry.py   providers by name
conversation.py  requests and answers of any provider        options.py    options of the AI functions
prompt.py        one row of ``prompt``: ask, run tools, check the answer, ask again
embed.py         columns to vectors                          classify.py   columns to labels

messages/        from the values of a row to a request
structured/      structured output and tools
remote/          OpenAI, Anthropic, Google and others: wires/, limits/, batch/, and one client for all
local/           models on this machine, by transformers
"""
