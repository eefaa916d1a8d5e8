"""Listen to a query: progress, statistics, failed rows, exporters. Everything here is a subscriber, or text for one.

subscribers    the user's own listeners; ``exporters`` for Prometheus and OpenTelemetry; ``viewers`` for the dashboard
stage_stats, stats           totals, added up from the events
forecast, bottleneck         pace, remaining time and cost; the stage that limits the speed
progress       draws while the query runs: ``progress_text`` says what, ``screens`` where
closing_line   the line that a query leaves
errors, failure_lines        failed rows, and their log lines
stats_table, table_html, timeline, text    statistics as text, HTML and SVG
gpus           how busy the GPUs are

The events are in ``events/``. May import nothing that runs queries.
"""
