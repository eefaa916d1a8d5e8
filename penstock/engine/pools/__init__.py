"""Pools: each runs the handlers of one stage (``contracts.WorkerPool``) and reports to the executor's mailbox.

threads            the pool for reads, Arrow kernels, writes and most functions -> handler_slot
asyncio            async functions: all calls of a query wait on one event loop
processes          a thread of ``threads`` for each process, which hands its batches on
                       process_group   starts, shares and ends the processes
                       worker          the loop in the process
                       transport       messages between them; Arrow data by shared memory
                       worker_output   what a process prints
                       worker_restart  after a death: which rows to try next; pure
thread_to_process  starts on threads, and moves to processes if the GIL holds them up -> gil

May import what ``engine`` may. A worker process loads ``worker`` and little else before its first task.
"""
