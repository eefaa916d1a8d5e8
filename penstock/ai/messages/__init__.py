"""The values of one row as a message for a model.

message        values to the turns of a request: texts, numbers, JSON
chat_messages  lists of messages with roles, as OpenAI and Anthropic write them
attachments    images, sounds, documents and files

It may import ``conversation``, ``types``, ``storage`` and ``media/images``; it knows no provider.
"""
