"""User functions: from the decorator to the call in a worker. Rows, batches, groups, generators and async.

On the user's line, a function becomes a spec (``expr.udf``), which is data:

decorators     func, cls, method -> options, option_spellings, parameters, specs

In a worker, a handler calls it:

call           func, cls and their methods, for the rows or batches of a task -> arguments, instances
batches        map_batches, map, flat_map, filter and map_groups -> formats
aio            the same calls as coroutines -> callers: thousands at once, without a task for each
generators     several values for a row, handed on a few at a time
results        what the function returned -> Arrow columns
retry          repeat a failed call, and limit its time
failures       what on_error makes of a failed row -> user_errors, worker_death
sizing         cut batches by weight, and halve a batch that does not fit in memory
cached_functions  results of functions with cache=True

May import ``plan.stages``, ``expr``, ``events``, ``cache``; it knows no pool and no executor.

Decisions
---------
- An error that ends a query is a ``UdfError`` and an instance of the class that the function raised. A tolerated
  failure gives null and a record, which travels with the output it belongs to: a batch that is tried again records
  nothing twice.
- ``failures`` alone applies ``on_error``. A ``FatalError`` is not about the row and always ends the query, so an outage
  never becomes a column of nulls.
- Stages that call methods of one object share its worker processes, on Ray its actors, and so its GPU. Instances in one
  process are built one at a time: transformers does not load two models safely at once.
- Async rows have no task each: as many coroutines as calls may wait take row after row of the next batch.
"""
