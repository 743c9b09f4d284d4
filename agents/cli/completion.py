"""`hatcast completion`: shell code for tab completion."""

from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_SHELLS: Final[Mapping[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(epilog='Example:  eval "$(hatcast completion bash)"')
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> None:
    """Print shell code that completes the commands, options and option values of hatcast with the Tab key.

    bash and zsh: add the line of the example, with the name of your shell, to ~/.bashrc or ~/.zshrc. fish: hatcast
    completion fish > ~/.config/fish/completions/hatcast.fish
    """
    root = click.get_current_context().find_root().command
    click.echo(_SHELLS[shell](root, {}, "hatcast", "_HATCAST_COMPLETE").source())
