"""`hatcast audit`: neighbours through the code of releases, in processes, and what was found as a table."""
