"""`hatcast audit`: release neighbouring inputs in several processes, and show the findings as a table."""
