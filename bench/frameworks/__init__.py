"""The same fold as programs of other stream processors. They run in environments of their own, without hatcast."""
