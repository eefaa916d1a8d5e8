"""The dashboard: a local page that shows queries while they run, and the rows of queries and jobs.

live        LiveQuery: a Subscriber with what the page shows of one query
recent      the last rows of a query that runs
process     the dashboard of this process, for ``ps.set_config(dashboard=True)``
cells       values of rows as the page shows them
prompts     the prompts of rows, rendered as they were sent
found_rows  rows that were found for a page
rows        pages of the rows of a job: search, failed rows, two jobs side by side
orders      WatchedJob: notes the figures of a job in its folder and follows the orders of a dashboard elsewhere
job         JobBoard: a job in a folder, which another process may write
server      DashboardServer: the page and its data over HTTP, for those who have the token
page/       the page: one HTML, one CSS and one JavaScript file

It is the `Viewer` of ``observe.viewers``, which loads it by name.
"""

from penstock.dashboard.orders import watch_job as watch_job
from penstock.dashboard.process import watch_query as watch_query
