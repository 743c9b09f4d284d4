"""`hatcast completion`: what a shell needs to complete commands and options."""

from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_SHELLS: Final[Mapping[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(epilog='Example:  eval "$(hatcast completion bash)"')
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> None:
    """Print the shell code that completes hatcast's commands, options and their values with the Tab key.

    bash and zsh: put the example's line, with your shell, into ~/.bashrc or ~/.zshrc. fish: hatcast completion fish >
    ~/.config/fish/completions/hatcast.fish
    """
    root = click.get_current_context().find_root().command
    click.echo(_SHELLS[shell](root, {}, "hatcast", "_HATCAST_COMPLETE").source())
