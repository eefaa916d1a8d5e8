"""User functions: from the decorator to the call in a worker. Rows, batches, groups, generators and async.

On the user's line, a function becomes a spec (``expr.udf``), which is data:

decorators     func, cls, method -> options, option_spellings, parameters, specs
aggregates     udaf; elements: functions over the elements of lists

In a worker, a handler calls it:

call           func, cls and their methods, for the rows or batches of a task -> arguments, instances
batches        map_batches, map, flat_map, filter and map_groups -> formats
aio            the same calls as coroutines -> callers: thousands at once, without a task for each
generators     several values for a row, handed on a few at a time
results        what the function returned -> Arrow columns
retry          repeat a failed call, and limit its time
failures       what on_error makes of a failed row -> user_errors, worker_death
sizing         cut batches by weight, and halve those that memory does not hold
memo           results of functions with cache=True

May import ``plan.stages``, ``expr``, ``events``, ``cache``; it knows no pool and no executor.
"""
