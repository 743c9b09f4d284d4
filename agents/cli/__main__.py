"""`python -m hatcast.agents.cli`: the command without its console script, as tests start it."""

from hatcast.agents.cli import main

if __name__ == "__main__":
    main()
