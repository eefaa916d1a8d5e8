"""A query tells about itself, and others listen: progress, statistics, exporters, the dashboard.

events         what the executor publishes, as data
call_counter   the calls of a stage while they run
stage_stats, stats   totals, added up from the events
forecast       pace, time left and cost, projected from recent figures
bottleneck     which stage limits the speed
progress       subscribes and draws: progress_text says what, screens where, closing_line what stays
stats_table, table_html, timeline   statistics as text, HTML and SVG
errors, failure_lines, tracebacks   failed rows, their log lines, and errors without the engine's frames
metrics, exporters, subscribers     the user's own figures and listeners; Prometheus and OpenTelemetry
text           numbers and text for people, safe on a terminal
cpu_clock, gpus   what the machine was busy with
dashboard/     the web page of a query or a job
"""
