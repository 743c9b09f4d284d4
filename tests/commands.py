"""`hatcast ...` as written in documents and helps, checked against the commands there are."""

import re
import shlex
from collections.abc import Iterator

import click

from hatcast.agents.cli import hatcast

_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}
_BEFORE = {*_ENDS, "run", "exec", "$"}


def said_in(text: str) -> Iterator[list[str]]:
    """The words of each command in a block of shell. A line that ends in a backslash goes on."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        words = _words(line)
        at = 0
        while at < len(words):
            before = words[at - 1] if at else "|"
            if words[at] in ("hatcast", "scripts/demo") and (before in _BEFORE or before.endswith(":")):
                end = next((end for end in range(at, len(words)) if words[end] in _ENDS), len(words))
                yield ["hatcast", "demo", *words[at + 1 : end]] if words[at] == "scripts/demo" else words[at:end]
                at = end
            at += 1


def _words(line: str) -> list[str]:
    inner = re.search(r"\"\$\((hatcast [^)]*)\)\"", line)
    reader = shlex.shlex(inner[1] if inner else line, posix=True, punctuation_chars="|&;<>")
    reader.whitespace_split = True
    reader.commenters = "#"
    try:
        return list(reader)
    except ValueError:  # a quote that is an apostrophe of prose: no command
        return []


def problem_of(words: list[str]) -> str | None:
    """What is wrong with a command; None: it and all its options are there."""
    context = click.Context(hatcast, info_name="hatcast")
    command: click.Command = hatcast
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            return f"{' '.join(words)}: no command {rest[0]!r}"
        command, rest = found, rest[1:]
    known = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    known |= {"-h", "--help", *(["--version"] if command is hatcast else [])}
    for word in rest:
        option = word.partition("=")[0]
        if option.startswith("-") and option != "-" and not re.fullmatch(r"-[0-9.]+", option) and option not in known:
            return f"{' '.join(words)}: {command.name} has no option {option}"
    return None
