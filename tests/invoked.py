"""`hatcast ...` in the test's own process."""

import pytest
from click.testing import CliRunner, Result

from hatcast.agents.cli import hatcast
from hatcast.stream.errors import HatcastError


def run(*words: object, given: str = "") -> Result:
    """Run a command; a refusal is raised. given: its standard input."""
    return CliRunner(catch_exceptions=False).invoke(hatcast, [str(each) for each in words], input=given)


def printed(*words: object, given: str = "") -> str:
    """What a command prints that succeeds."""
    done = run(*words, given=given)
    assert done.exit_code == 0, done.output
    return done.stdout


def refusal(*words: object, given: str = "") -> str:
    """The one line of a command that is refused."""
    with pytest.raises(HatcastError) as refused:
        run(*words, given=given)
    line = str(refused.value)
    assert "\n" not in line
    return line
