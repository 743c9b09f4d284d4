"""Criteria by which a plan of running means takes the best kind."""

from enum import StrEnum


class Criterion(StrEnum):
    """Error that the best kind has least: root mean square or maximum, of the running mean or sum."""

    MEAN_RMS = "mean-rms"
    MEAN_MAX = "mean-max"
    SUM_RMS = "sum-rms"
    SUM_MAX = "sum-max"
