"""Survey of a city's recordings: statistics of their HATs, and the cells with enough users.    [T III.A, III.C]

    rows        accepted readings with their cells at several resolutions
    figures     exact numbers of users, readings and HATs, from histograms
    selection   cells with enough users in every slot: by exact counts, or by noisy counts of public candidates

The survey reads raw data. Only the result of `selection.noisy_counts` is differentially private.
"""
