"""Hybrid K-means over vectors in [0, m]^d, in steps of the public grid.    [H App. E]

- setting: public parameters; split of epsilon, scales of the noise
- seeding: initial centres, without data
- tally: counts and sums of each cluster, with the proof of the sensitivity
- devices: messages of a device that does not trust the operator
- means: mean of each cluster from either group, and the blend of both
- lloyd: the iterations
- hat_vectors: one vector per user, from the contributions of HATs

See docs/specification/estimators.md, section 6.
"""
