"""Optional parts of hatcast: the packages that only some commands need, and the extra that installs each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {"matplotlib": "research", "pandas": "pandas", "polars": "research", "scipy": "research", "tomlkit": "research"}
)
"""Package -> the extra in pyproject.toml that installs it."""


def missing_extra(error: BaseException) -> str | None:
    """Return one line that names the extra to install; None if the error is not a missing optional package."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return f"this needs {package}, which is not installed: run  pip install 'hatcast[{extra}]'"
