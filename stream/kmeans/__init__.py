"""Hybrid K-means over vectors in [0, m]^d, in steps of the public grid.    [H App. E]

- setting: public parameters; split of epsilon, scales of the noise; one vector per user, from the contributions of HATs
- groups: counts and sums of each cluster, with the proof of the sensitivity; what devices answer
- messages: those of a device that does not trust the operator
- lloyd: initial centres, mean of each cluster from either group and the blend of both, the iterations

See docs/specification/estimators.md, section 6.
"""
