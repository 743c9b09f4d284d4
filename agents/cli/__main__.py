"""`python -m hatcast.agents.cli`: the `hatcast` command without its console script, for tests."""

from hatcast.agents.cli import main

if __name__ == "__main__":
    main()
