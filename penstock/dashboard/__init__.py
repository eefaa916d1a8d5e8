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
row_pages/      rows of jobs and queries: read, searched, sorted, and shown a page at a time
trials          edited prompts, asked about a few rows
reviews         notes, thumbs and verdicts of people on rows
comparison      ``ps.compare``: two jobs, with the verdicts
server          DashboardServer: the page and its data over HTTP, for people who have the token
page/           the page: ``app.js`` and a module for each part of it; ``vendor/`` holds Preact, htm and uPlot

``observe.viewers`` loads it by name.
"""

from penstock.dashboard.orders import watch_job as watch_job
from penstock.dashboard.process import watch_query as watch_query
