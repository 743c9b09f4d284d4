"""`python -m tools.python_reference [--check]`: write the reference of docs/python.md from docstrings, or check it."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import hatcast

PAGE: Final = Path(__file__).parents[1] / "docs" / "python.md"
FUNCTIONS: Final = ("batch", "read", "estimates", "running_means", "plan", "plan_continual", "raw_means")
CLASSES: Final = (
    "Policy",
    "Frame",
    "Records",
    "Releases",
    "BatchReleases",
    "Answers",
    "Estimates",
    "RunningMeans",
    "BudgetDays",
    "PlannedLimits",
    "PlannedLimit",
    "PlannedKinds",
    "PlannedKind",
    "RawMeans",
    "HatcastWarning",
)
ELSEWHERE: Final = {
    "ESTIMATORS": "estimators.md",
    "Columns": "python.md#columns",
    "FORMATS": "feeds.md",
    "HatcastError": "python.md#errors",
    "Settings": "configuration.md",
    "load_settings": "configuration.md",
    "ReleaseRecord": "consume.md#contracts",
    "QueryRecord": "consume.md#contracts",
    "EstimateRecord": "consume.md#contracts",
    "RunningRecord": "consume.md#contracts",
    "BudgetRecord": "consume.md#contracts",
}
"""Public names that another page describes."""
_REFERENCE: Final = re.compile(r"(<!-- reference, written by [^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)
_FIELD: Final = re.compile(r"([\w.]+(?:(?:, | \.\. )[\w.]+)*) {2,}(\S.*)")
_DOCUMENT: Final = re.compile(r"docs/([\w/-]+)\.md")
_TITLES: Final = {"Args": "Arguments"}
_SECTION: Final = re.compile(r"(Args|Returns|Raises):")
_NAMED: Final = re.compile(r"(\w+): (.*)")


def render_page(page: str) -> str:
    """Return the page with a new reference and the same text around it. Raises ValueError if it has no place for it."""
    if not _REFERENCE.search(page):
        raise ValueError("docs/python.md has no place for the reference")
    return _REFERENCE.sub(lambda match: f"{match[1]}\n{reference()}\n{match[3]}", page)


def reference() -> str:
    """Return the reference of all public functions and classes."""
    parts = [*(_function(name, getattr(hatcast, name)) for name in FUNCTIONS)]
    parts += [_class(name, getattr(hatcast, name)) for name in CLASSES]
    return "\n".join(parts)


def _function(name: str, function: Any) -> str:
    return f"### hatcast.{name}\n\n```python\n{_signature(name, function)}\n```\n\n{_text(function)}"


def _class(name: str, kind: type) -> str:
    lines = [f"### hatcast.{name}\n\n{_text(kind)}"]
    members = [*_members(kind)]
    return "\n".join(lines + ([*members, ""] if members else []))


def _members(kind: type) -> Iterator[str]:
    """Yield a line for each public method and property of the class itself; of the core's classes, to make one."""
    for name, member in vars(kind).items():
        described = member.__func__ if isinstance(member, classmethod) else member
        documented = isinstance(described, property) or inspect.isfunction(described)
        is_core = kind.__module__.startswith("hatcast.stream") and not isinstance(member, classmethod)
        if name.startswith("_") or not documented or is_core:
            continue
        shown = name if isinstance(described, property) else _call(name, described)
        yield f"- `{shown}`: {_linked(' '.join((inspect.getdoc(described) or '').split()))}"


def _call(name: str, function: Any) -> str:
    parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
    return f"{name}({', '.join(parameters)})"


def _signature(name: str, function: Any) -> str:
    """Return the definition's head as in the source, with a line for each parameter."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"{name} is not a function")
    arguments = tree.args
    positional = arguments.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    lines = [*map(_parameter, positional, [*defaults, *arguments.defaults])]
    if arguments.kwonlyargs:
        lines += ["*", *map(_parameter, arguments.kwonlyargs, arguments.kw_defaults)]
    body = "".join(f"    {line},\n" for line in lines)
    head = f"hatcast.{name}(\n{body}) -> {'None' if tree.returns is None else ast.unparse(tree.returns)}"
    return head.replace("'", '"')


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    return f"{argument.arg}{annotation}" + ("" if default is None else f" = {ast.unparse(default)}")


def _text(described: Any) -> str:
    """Return a docstring as Markdown: its sections and its lists of fields become lists."""
    section, in_list, lines = "", False, []
    for line in (inspect.getdoc(described) or "").splitlines():
        field = _FIELD.fullmatch(line)
        if _SECTION.fullmatch(line):
            section = line[:-1]
            lines += [f"**{_TITLES.get(section, section)}**", ""]
        elif section:
            lines += _of_section(line)
        elif field is not None:
            lines += [*([] if in_list else [""]), f"- `{field[1]}`: {field[2]}"]
            in_list = True
        elif in_list and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            lines += ["", line] if in_list and line else [line]
            in_list = False
    return _linked(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n")


def _of_section(line: str) -> list[str]:
    text = line.removeprefix("    ")
    named = _NAMED.fullmatch(text)
    if named is not None:
        return [f"- `{named[1]}`: {named[2]}"]
    return [f"  {text.strip()}" if text.startswith("    ") else text]


def _linked(text: str) -> str:
    return _DOCUMENT.sub(lambda match: f"[{match[1]}]({match[1]}.md)", text)


def main() -> None:
    """Write the reference; with `--check` exit 1 if it differs."""
    page = PAGE.read_text()
    rendered = render_page(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(rendered)
    elif rendered != page:
        sys.exit("docs/python.md and the docstrings differ: run python -m tools.python_reference")


if __name__ == "__main__":
    main()
