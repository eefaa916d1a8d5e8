"""``ask``: a filter in plain words, answered by one model, or by a model and a cheap judge with a promise.

statements      a template, and the yes or no of one model
ask_column      the column of ``ask``; with a cheap judge the planner expands it (``plan/cascade.py``)
thresholds      the statistics: which scores are sure, tested exactly on a uniform sample
learned_judge   logistic regression on vectors
calibration     the better judge and its thresholds, from the labels of the sample
handlers        the relations of the plan: draw the sample, size it, calibrate, route

The room may import ``decisions`` and everything below it, and ``relational`` for rows that wait in a file.

Decisions
---------
- The cascade is plain nodes, and its calls are ordinary calls. A resumed job draws the same rows, because the seed is
  fixed and the input in order, and finds their labels in its ledger.
- The pilot chooses everything (judge, size, order of the thresholds); the calibration sample only tests. So the tests
  are valid however the judge behaves.
- Random rows are copied in front of all rows, so labels are known before the first row passes, and order is kept.
- No scikit-learn: a few Newton steps take less time than its import.
"""
