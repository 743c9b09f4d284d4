"""Optional parts of hatcast: the packages that only some commands need, and the extra that installs each."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from hatcast.stream.errors import HatcastError

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "matplotlib": "research",
        "nacl": "signed",
        "pandas": "pandas",
        "polars": "research",
        "pyarrow": "parquet",
        "scipy": "research",
        "tomlkit": "research",
        "xlsxwriter": "excel",
    }
)
"""Package -> the extra in pyproject.toml that installs it."""


def missing_extra(error: BaseException, what: str = "this") -> str | None:
    """Return one line that names the extra to install; None if the error is not a missing optional package.

    what   needs it
    """
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return _missing(package, what) if package in EXTRAS else None


def require(package: str, what: str = "this") -> None:
    """Import an optional package. Raises HatcastError, which names the extra to install, if it is not installed.

    what   needs it, for the message
    """
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise HatcastError(_missing(package, what)) from None


def _missing(package: str, what: str) -> str:
    return f"{what} needs {package}, which is not installed: run  pip install 'hatcast[{EXTRAS[package]}]'"
