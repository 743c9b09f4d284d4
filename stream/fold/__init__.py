"""The fold: a pure function from one partition's records, in offset order, to users' contributions to HATs."""
