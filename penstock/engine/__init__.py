"""The executor: it moves handles of batches between the pools of the stages, and never touches the rows.

A query is one loop on the driver's thread: dispatch a task, collect reports, deliver outputs.

executor      the loop, and the control of a running query: pause, cancel
scheduling    Candidate, pick_stage: which stage starts a task next, and why the others do not
stage         StageState: one running stage
                  stage_input   the next task: of a read, of rows, of columns alone -> inbox, read_queue
                  task_sizes    its rows: one class for each inbox policy -> pacing, batch_size
                  task_costs    the memory and time that it takes, judging by earlier tasks
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

Decisions
---------
- A bundle is a handle with an offset and a length. The driver decides limits and batch sizes by counting rows, and the
  worker that holds the data cuts it. So Ray shares this executor.
- Tasks rest between two outputs; no worker blocks. The executor submits them again when there is room.
- An ordered stage releases outputs in the order of submission, so bundles carry no order key. An unordered stage
  releases them as they come, and one slow row delays nothing.
- One budget in bytes covers the query. The growth of a stage so far predicts the output of its next task; before the
  first one, fiftyfold growth is assumed. ``Footprint`` adds the copies that a pool makes. Input and output of a task
  each get an eighth of the budget over the cores, at least 1 MB (``config.task_share``). Everything that holds data in
  pieces asks ``config.piece_nbytes`` for their size. Large rows are weighed before they are many: expressions compute
  16 sampled rows of a first batch (``SlicedSteps``), and a large output makes tasks small for some time.
- The budget does not count models, what functions allocate, batch sizes that users fix, collected results, and a
  single row, however large. If nothing runs, the budget gives way, so that no plan stops for ever.
- A limit, or a reader that may stop early, needs few rows. So a stage of calls starts with 16 rows, and takes at most
  four times the rows that are settled, which means read or dropped later (``reader_limit.rows_to_take``).
- ``batch_size="auto"`` is found by measurement. The rate counts the time of workers and engine, and only tasks of
  exactly the current size. A size that the user gives is exact, but a task for a process carries as many such batches
  as take 20 ms, and the worker cuts them.
- A task of a row function has as many rows as take a tenth of a second, or three times its own cost (``RowPace``).
- After an error or Ctrl-C the executor waits for running calls whose answers a ledger keeps. A reader who leaves
  raises GeneratorExit, which cancels at once; the parts of a job have no reader, so there it means a failure.
"""
