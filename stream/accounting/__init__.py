"""Privacy accounting: a day's cost per user, and its composition to (epsilon, delta)."""
