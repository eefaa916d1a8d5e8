"""The dashboard: a local page that shows queries while they run, and the rows of queries and jobs.

live            LiveQuery: a Subscriber with what the page shows of one query
error_kinds     failed rows by the kind of their error
recent          the last rows of a query that runs
process         the dashboard of this process, for ``ps.set_config(dashboard=True)``
known           the jobs and dashboards of this machine
home            HomeBoard: the list of jobs and queries
job             JobBoard: a job in a folder, which another process may write
orders          WatchedJob: notes the figures of a job in its folder and follows the orders of a dashboard elsewhere
cluster         nodes and actors of the Ray cluster
commands        run the command line of a job again
cells, prompts  values of rows as the page shows them; the prompts of rows, rendered as they were sent
facets          columns and their fields: filters, sort keys, distributions
found_rows      rows that were found for a page
row_search      the numbers of the rows that a person asks for
rows            pages of the rows of a job
counterparts    the rows of another job beside them
trials          edited prompts, asked about a few rows
reviews         notes, thumbs and verdicts of people on rows
export          selected rows as a file
server          DashboardServer: the page and its data over HTTP, for those who have the token
page/           the page: ``app.js`` and a module for each part of it; ``vendor/`` holds Preact, htm and uPlot

It is the `Viewer` of ``observe.viewers``, which loads it by name.
"""

from penstock.dashboard.orders import watch_job as watch_job
from penstock.dashboard.process import watch_query as watch_query
