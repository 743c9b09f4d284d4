"""The live map: a page, a JSON API and a stream of changes, made of `hats.means` and `hats.budget` and nothing else.

    Kafka -> topic.Reader -> kept.Kept -> views (JSON, GeoJSON) -> api -> anyone
                                '-> changes -> hub.Hub -> one Chunk for all -> every page that is open

It reads no other topic and no Redis, so it can show nothing that is not public. A record's bytes are kept and handed on
as they are: what the page and the API show are the topic's own decimals.
"""
