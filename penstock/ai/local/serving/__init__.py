"""Inference engines on this machine, vLLM and SGLang: they batch requests by themselves, and are fed row by row.

engine.py         what an engine must do           prefix_queue.py    the order of requests: groups by prefix
feed.py           requests to replicas, restarts   shared_engine.py   one engine for all steps that name it
prompter.py       the model behind ``prompt``      provider.py        the providers
sampling.py       options as engines take them     prompt_text.py     requests as texts and tokens
spec.py           descriptions of engines          vllm.py            vLLM's async engine
sglang.py         SGLang's engine                  sglang_process.py  the child process that it runs in
"""
