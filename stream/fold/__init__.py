"""The fold: one partition's records, in offset order, to contributions of users to HATs."""
