"""`hatcast device`: a device of the local model, or many of them in one process.    [docs/device.md]

own        a device's readings to its own means, by the fold that the operator uses
store      what a device must not forget: its ids of the day, and each report as the bytes that are sent
drawing    from a mean to a stored report; the only place that draws
outbox     stored reports to the topic, until the broker has them
recorded, live   the two ways in which time passes
"""
