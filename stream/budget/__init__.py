"""The budget of one user: the largest charge of a day that a policy allows."""
