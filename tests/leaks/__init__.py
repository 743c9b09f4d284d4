"""Search of everything that a whole system writes for the data of single vehicles."""
