"""Compile what hatcast imports: the last step of the Dockerfile, with the image's own Python.

Neither Debian's Python nor the environment has bytecode, and the root file system of a container may be read-only: each
start would compile everything again. The bytecode of all files would take 44 MB; what is used takes 27. It has no times
of its sources, so that two builds are equal: a file that is changed in a container keeps its bytecode.
"""

import sys
from compileall import compile_dir
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file
from typing import Final

import hatcast
from hatcast.agents.errors.causes import missing_extra

# These import their own modules only when they use them.
LATE: Final = ("confluent_kafka.admin", "faust")
_UNTIMED: Final = PycInvalidationMode.UNCHECKED_HASH


def main() -> None:
    """Import every module of hatcast but those whose optional package is not installed, and compile what that loads."""
    sys.dont_write_bytecode = True
    for module in walk_packages(hatcast.__path__, "hatcast."):
        if module.name.endswith(".__main__"):  # it would run
            continue
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            if missing_extra(error) is None:
                raise
    for name in LATE:
        for folder in import_module(name).__path__:
            compile_dir(folder, quiet=1, invalidation_mode=_UNTIMED)
    files = {getattr(module, "__file__", None) for module in sys.modules.values()}
    for file in sorted(each for each in files if each and each.endswith(".py") and Path(each).is_file()):
        compile_file(file, doraise=True, invalidation_mode=_UNTIMED)


if __name__ == "__main__":
    main()
