"""Hybrid K-means over vectors in [0, m]^d, in steps of the public grid.    [H App. E], [estimators.md, section 6]

- setting: all that is public; what epsilon is split into, and how wide the noise is
- seeding: where clusters start, without data
- tally: the users of each cluster, counted and summed, with the proof of the sensitivity
- devices: what a device sends that does not trust the operator
- means: the mean of each cluster by either group, and the blend of both
- lloyd: the iterations
- hat_vectors: a vector a user, of the contributions of HATs
"""
