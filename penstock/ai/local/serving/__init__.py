"""vLLM's engine on this machine: it batches requests by itself, and is fed row by row.

provider       the providers: a server, or the engine in this process
prompter       the model behind ``prompt``
engine         the interface of an engine
shared_engine  one engine for all steps that name it
feed           requests to replicas; restarts
prefix_queue   the order of requests: groups by prefix
prompt_text    requests as texts and tokens
sampling       options as engines take them
vllm           vLLM's async engine

It may import what ``ai.local`` may.

Decisions
---------
- The engine batches requests by itself, so ``prompt`` feeds it like a remote model: row by row, with many rows waiting.
- All steps with an equal ``EngineSpec`` share one engine. When it dies, its requests run again an eighth at a time, so
  a deadly one is found after few restarts. On Ray, replicas are actors, and the driver feeds them.
"""
