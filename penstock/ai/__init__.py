"""Models as functions of columns: providers, their wire protocols, and what surrounds a call.

provider.py      what a provider is, and the models it hands out    registry.py   which one a name means
conversation.py  a request and an answer, whoever is asked          options.py    what a call may say
prompting.py     one row: ask, run tools, check, ask again          pricing.py    what that costs
embedding.py     many texts packed into one request                 classifying.py

messages/        from the values of a row to what a model is asked
forms/           the form an answer must have; tools that a model may call
remote/          OpenAI, Anthropic, Google and their kin: wires, and one client for all
limits/          how many requests at once, and how fast
local/           models that run here, by transformers
"""
