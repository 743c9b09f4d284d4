"""Feeds: what cities send, as readings. One file a feed; no one else knows a feed's field names.

To add one: a file here, a name below, a sample under tests/data/feeds, a row in docs/feeds.md, which says how.
A feed never raises on the bytes of a record: what it cannot read is `None`, the outcome `undecodable`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.readings.formats import capmetro, gtfs_rt, hfp, itms, jsonl
from hatcast.stream.readings.formats.interface import Feed, Recorded, Table

FORMATS: Final[Mapping[str, Feed]] = MappingProxyType(
    {feed.name: feed for feed in (jsonl.FEED, itms.FEED, gtfs_rt.FEED, hfp.FEED, capmetro.FEED)}
)

__all__ = ["FORMATS", "Feed", "Recorded", "Table"]
