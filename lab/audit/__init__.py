"""Audit of the promise: neighbouring inputs through the code that releases, and how far its outputs differ.

- hats: what a family is, neighbouring inputs of one part of a policy and the claim about their releases; and one HAT's
- transcript: what a release asks of its noise, recorded for one input and replayed for its neighbour
- search: neighbours that use as much of the claim as possible; `Shifts` compares where noise is requested alone
- events: a lower bound of epsilon from samples
- laws: all outputs of private selections on small inputs, with their exact probabilities
- family, run: the audit of one family, and of policies part by part
- days, devices, lists, tracker: families of other releases

Nothing here makes a release: a family calls the functions that `agents/release` and `agents/batch` call, with the noise
that is passed in. See docs/audit.md.
"""
