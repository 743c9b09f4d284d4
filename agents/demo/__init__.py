"""Demo on one machine: a feed, a worker, embedded Kafka and Redis, and a live table of the releases.

    feed.py (own process) -> Kafka, Redis (embedded/, own process) <- Worker (this process)
                                 '-> observer.py -> State -> rendering.py

It runs the worker of `hatcast worker` with its own settings, without the topic checks: the mock cluster does not
support admin calls.
"""
