"""Functions that are rows of a table: name, parameters, result, kernel or SQL, description and example."""
