"""AI functions: from a column of values to a column of answers, vectors or labels.

Read the interfaces first, then the functions in a worker, then one of the folders:

conversation       requests and answers of any provider
provider           the interface of providers and models
provider_registry  providers by name
options, option_types    options of the AI functions, and a line about each
prompt_arguments   the arguments of ``prompt``, sorted
model_columns      a call of an AI function as an expression
identity           what determines the results, for jobs

prompt             prompts in a worker: rows to requests
dialogue           one conversation: tools, validation
embed, classify    embeddings of columns, and labels
rerank             the relevance of texts for queries
cached_model       batch models with cached results
lenient_json       JSON of servers, which is not always valid

messages/          values of a row to a message
structured/        return formats, and tools
client/            one call: sent, retried, billed, cached
providers/         the API of each provider
decisions/         typed questions, answered with probabilities
cascade/           filters in plain words, with a cheap judge
local/             models on this machine

The folders know nothing of expressions and columns, except ``decisions`` and ``cascade``. ``providers`` builds on
``client``. ``local`` uses neither, except ``providers.wire`` and the judges of ``decisions``. Nothing here imports
pools or ``io``.
"""
