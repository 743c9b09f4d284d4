"""The demo: a feed, a worker and the services they need, on one machine, and what comes of it as a live table.

    feed.py (own process) -> Kafka, Redis (embedded/, own process) <- Worker (this process)
                                           '-> observer.py -> State -> rendering.py

The worker is the one that `hatcast worker` runs, with settings of its own. Only the checks of topics are left out:
the mock cluster answers no admin calls.
"""
