"""Running means of published records: today so far, the last 24 hours or 7 days, this hour of weekdays or weekends.

Post-processing of `hats.means`: nothing else is read, so it costs no epsilon. Equal records give equal bytes.
    [docs/specification/continual.md]
"""
