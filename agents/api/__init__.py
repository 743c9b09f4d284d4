"""The Python API: private means of files and frames, in one process. The package `hatcast` exports its names.

Its functions run the code of the commands `batch` and `plan`, and raise their errors.
"""
