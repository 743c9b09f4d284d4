"""`python -m hatcast`: the command line."""

from hatcast.agents.cli import main

main()
