"""Remote providers: the API of each, its defaults, and its batch API.

wire               the interface of an API: a request to a body, a body to answers
remote_provider    address, key and headers
remote_model       price, and the layers of calls
remote_prompter    prompts
remote_embedder    embeddings of texts
prompt_keys        look up cached answers by their keys
recorded_usage     the usage of calls of an earlier run

openai             OpenAI, and servers with its API: LM Studio, Ollama, vLLM ...
chat_completions   the API of most servers
responses          OpenAI's newer API
openai_batches     OpenAI's batch API
anthropic          Claude
anthropic_batches  Anthropic's batch API
google             Gemini

A provider may import ``client``, ``conversation`` and ``provider``. Wires are pure functions and send nothing.
"""
