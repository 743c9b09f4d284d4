"""Commands of the laboratory, one file for each."""
