"""Useful estimates at an honest budget: a model of the city, residual queries, individual accounting."""
