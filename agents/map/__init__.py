"""Live map: a web page, a JSON API and an event stream, from the public output topics only.

    Kafka -> topic_reader.Reader -> history.History, newest.AnswerIndex -> rendering (JSON, GeoJSON) -> api -> clients
                                 '-> feed.FeedChanges -> events.Hub -> one shared EventChunk -> every open page

The map reads releases, estimates, answers, clusterings and budget, no other topic and no Redis, so it cannot show
anything that is not public. It stores each record's bytes and passes them on unchanged: the page and the API show the
decimals of the topic.
"""
