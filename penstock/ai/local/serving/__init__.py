"""vLLM's engine on this machine: it batches requests by itself, and is fed row by row.

engine.py         what an engine must do           prefix_queue.py    the order of requests: groups by prefix
feed.py           requests to replicas, restarts   shared_engine.py   one engine for all steps that name it
prompter.py       the model behind ``prompt``      provider.py        the providers
sampling.py       options as engines take them     prompt_text.py     requests as texts and tokens
vllm.py           vLLM's async engine
"""
