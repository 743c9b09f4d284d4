"""The survey: what a city's recordings would be as HATs, and which cells have enough users.    [T III.A, III.C]

    rows        which readings count, and in which cells of several resolutions they lie
    figures     how many users, readings and HATs: exact, from histograms
    selection   cells with enough users in every slot: as counted, or with noise on public candidates

It reads raw data. Nothing of it is private but what `selection.noisy_counts` gives out.
"""
