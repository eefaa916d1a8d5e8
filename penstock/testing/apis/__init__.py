"""The wire format of each API that the test server speaks.

model_api   the protocols of an API and a provider, and what all of them share
openai, anthropic, google
batches     the batch APIs of OpenAI and Anthropic
embeddings  vectors made from a hash of the text
"""
