"""The executor: it moves handles of batches between the pools of the stages, and never touches the rows.

A query is one loop on the driver's thread: dispatch a task, collect reports, deliver outputs.

executor      the loop, and the control of a running query: pause, cancel
scheduling    pick_stage: which stage starts a task next, and why others do not; pure
stage         StageState: one running stage, as the loop and ``pick_stage`` see it
                  stage_input   the next task: of a read, of rows, of columns alone -> inbox, read_queue
                  task_sizes    its rows: one class for each inbox policy -> pacing, batch_size
                  task_costs    the memory and time that it takes, by those before it
                  reader_limit  the rows that the reader still needs, so that few calls are made
                  workers       the pool that does it, and the cores
                  in_flight     tasks that run, rest or wait for an earlier one
                  error_limit   too many failed rows end the query
resources     what the stages share: memory, cores, and the results that wait for the reader
sampling      what progress and statistics see of the stages, five times a second
lineage       from which input rows a bundle was made, for jobs
read_groups   many small files are one task
cancellation  a request from another thread
handlers      in a worker: read, transform, write -> steps, multiplying_steps
pools/        threads, an event loop, processes

May import everything below it, and ``plan.stages``; it knows no file format and no model.
"""
