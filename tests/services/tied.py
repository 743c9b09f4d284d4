"""Becomes the given command, tied to its parent: ``python tied.py PARENT_PID COMMAND...``.

On Linux the kernel then kills the command when its parent dies, even by ``kill -9``. A process of its own, since code
between fork and exec of a process with threads (``preexec_fn``) may deadlock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(sys.argv[1]):  # it died before the line above
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])
