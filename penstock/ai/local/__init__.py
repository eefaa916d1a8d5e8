"""Models that run on this machine, by transformers.

transformers      the provider
weights           find the files of a model
checkpoint        a model as data
local_model       the base of all models
sentence_modules  the modules of a text encoder -> text_encoder: run them; bert: encoders of the BERT family;
                  int8: with 8-bit products
packed            other encoders without padding -> compiled: compile them while they run
tokens            texts as batches of tokens -> word_tokens: tokenize each word once
batch_runner      run batches on the device
text_classifier   labels of texts -> text_reranker: the relevance of texts
vision            vectors and labels of images -> image_resizer
generation        prompts and answers -> chat: chat templates; sampling: the options; constraint: tokens that a JSON
                  schema allows
serving/          vLLM's engine

It imports torch and transformers when a model is loaded. It may import what ``ai`` may, and of ``providers`` only
``wire``.
"""
