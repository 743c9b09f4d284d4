"""`hatcast plan sums`: expected errors of each kind of running sums and means, and the best one."""

from enum import StrEnum


class Criterion(StrEnum):
    """Error that the best kind has least: root mean square or maximum, of the running mean or sum."""

    MEAN_RMS = "mean-rms"
    MEAN_MAX = "mean-max"
    SUM_RMS = "sum-rms"
    SUM_MAX = "sum-max"
