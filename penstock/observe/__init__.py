"""Listen to a query: progress, statistics, failed rows, exporters. Everything here is a subscriber, or text for one.

subscribers    the user's own listeners
exporters      figures for Prometheus and OpenTelemetry
viewers        load the dashboard by name
stage_stats, stats           totals, added up from the events
forecast, bottleneck         pace, remaining time and cost; the stage that limits the speed
progress       draws while the query runs: ``progress_text`` makes the text, ``screens`` are terminals and notebooks
closing_line   the line that a query leaves; ``on_finish`` tells a function or a webhook how a write ended
failed_rows    the failed rows; ``failure_lines`` makes their log lines
printable      text and numbers for people, safe to print
stats_table    statistics as text
gpus           how busy the GPUs are

The events are in ``events/``. The room may import ``events``, ``types``, ``storage`` and the modules at the top;
nothing that runs queries.
"""
