"""`hatcast device`: one device of the local model, or a fleet in one process. See docs/device.md.

fold             readings -> the device's means, with the operator's fold
perturbation     mean -> stored report; the only module that draws noise
store, stored    state file: daily ids, reports and answers as the bytes that are sent, day keys
outbox           producer of stored reports: sends each until the broker has it
closing          slots close by real time or by recorded time
"""
