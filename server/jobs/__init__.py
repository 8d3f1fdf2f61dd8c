"""Jobs: solves in child processes, at most a given number at a time, led by rows of the database."""
