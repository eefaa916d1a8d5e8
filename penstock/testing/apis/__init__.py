"""The wire format of each API that the test server speaks.

model_api   the protocols of an API and a provider, and the parts that all of them share
openai, anthropic, google    one module for each provider
decisions   the answers of services for decisions: OpenAI, System One
batch_apis  the batch APIs of OpenAI and Anthropic
embeddings  vectors made from a hash of the text

It may import ``testing.faults`` and ``testing.script``.
"""
