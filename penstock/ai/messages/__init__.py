"""From the values of a row to what a model is asked."""
