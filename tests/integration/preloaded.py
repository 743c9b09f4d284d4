"""The last module that is loaded before commands are forked: it leaves them little to look through.

Faust looks up the module of an agent among all modules that are loaded, and a worker collects its garbage at its start:
both take as long as the worker's own start, and are done here for all.
"""

import gc
import inspect

inspect.getmodule(inspect.currentframe())  # kept: module -> file
gc.collect()
gc.freeze()
