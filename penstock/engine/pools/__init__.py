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

Decisions
---------
- A process is started afresh, never forked, and gets its work by cloudpickle.
- Batches travel as descriptors of anonymous memory files: one copy in, none out, nothing to clean up after a kill, and
  no limit by ``/dev/shm``. Columns that come back unchanged are not copied, unless the process has loaded torch, which
  can write to read-only arrays.
- A process that dies is replaced and its batch tried again, then cut until the row that kills stands alone.
- ``use_process=None`` starts on threads. If several threads together get only one core, they hold the GIL, and new
  tasks go to processes, if the function can be pickled.
"""
