"""The demo: a feed, a worker and the services they need, on one machine, and what comes of it as a live table.

    agents.demo.feed (own process) -> Kafka, Redis (agents.embedded, own process) <- Worker (this process)
                                                 '-> agents.demo.watch -> State -> agents.demo.view

The worker is the one that `hatcast worker` runs, with settings of its own. Only the checks of topics are left out:
the mock cluster answers no admin calls.
"""
