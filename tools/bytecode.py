"""Compile what hatcast imports: the last step of the Dockerfile, with the image's own Python.

Neither Debian's Python nor the environment has bytecode, and the root file system of a container may be read-only: each
start would compile everything again. The bytecode of all files would take 44 MB; what is used takes 27.
"""

import sys
from compileall import compile_dir
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

import hatcast
from hatcast.agents.errors.extras import missing_extra

# These import their own modules only when they use them.
LATE: Final = ("confluent_kafka.admin", "faust", "kafka")


def main() -> None:
    """Import every module of hatcast, which writes its bytecode, but those whose optional package is not installed."""
    if sys.dont_write_bytecode:
        sys.exit("bytecode: PYTHONDONTWRITEBYTECODE is set, so nothing would be written: unset it")
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
            compile_dir(folder, quiet=1)


if __name__ == "__main__":
    main()
