"""Running means of published records: today so far, the last 24 hours or 7 days, this hour of weekdays or weekends.

Post-processing of `hats.means`: nothing else is read, so it costs no epsilon. Equal records give equal bytes.
    [docs/specification/continual.md]

inputs    numbers of the slots: from releases, or from a smoother's estimates
windows   slots that are in a window
means     weighted mean of a window for each cell, with its interval
running   `RunningMeans`: slots in, records out
setting   public parameters, from the policy
records   records of one running mean and slot
state     inputs of a local date, from which another object continues
"""
