"""`hatcast plan --continual`: expected errors of each kind of running sums and means, and the best one."""
