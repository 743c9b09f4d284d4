"""`hatcast device`: one device of the local model, or a fleet in one process. See docs/device.md.

fold             readings -> the device's means, with the operator's fold
perturbation     mean -> stored report; the only module that draws noise
store, stored    state file: daily ids, reports and answers as the bytes that are sent, day keys
closing          slots close by real time or by recorded time; stored reports are sent until the broker has them
"""
