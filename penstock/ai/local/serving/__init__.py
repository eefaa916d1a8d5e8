"""Inference engines in this process, such as vLLM: they batch requests by themselves, and are fed row by row.

engine.py         what an engine must do           prefix_queue.py   the order of requests: groups by prefix
feed.py           requests to replicas, restarts   shared_engine.py  one engine for all steps that name it
prompter.py       the model behind ``prompt``      vllm.py           vLLM's async engine
sampling.py       options as vLLM takes them       provider.py       the providers
"""
