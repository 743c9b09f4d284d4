"""A small writer of vector tiles and of PMTiles archives of them.    [Mapbox Vector Tile 2.1; PMTiles, spec v3]"""

import gzip
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import Writer

Place = tuple[float, float]
"""Longitude and latitude."""
_EXTENT: Final = 4_096
POINT, LINE, POLYGON = 1, 2, 3
_LAYERS: Final = ("earth", "landuse", "water", "roads", "places")


@dataclass(frozen=True)
class Shape:
    """A feature of a layer, in degrees."""

    layer: str
    kind: int
    places: Sequence[Place]
    properties: Mapping[str, Any] = field(default_factory=dict)


def write_archive(path: Path, shapes: Sequence[Shape], zooms: Iterable[int], **metadata: Any) -> Path:
    """Write an archive with the tiles that the shapes are in."""
    box = _box([place for shape in shapes for place in shape.places])
    with path.open("wb") as file:
        writer = Writer(file)  # type: ignore[no-untyped-call]
        tiles = sorted((zxy_to_tileid(*at), at) for zoom in zooms for at in _tiles(box, zoom))
        for number, at in tiles:
            if data := _tile(shapes, *at):
                writer.write_tile(number, gzip.compress(data, mtime=0))  # type: ignore[no-untyped-call]
        west, south, east, north = (int(each * 1e7) for each in box)
        header = {"tile_type": TileType.MVT, "tile_compression": Compression.GZIP}
        bounds = {"min_lon_e7": west, "min_lat_e7": south, "max_lon_e7": east, "max_lat_e7": north}
        layers: dict[str, Any] = {"vector_layers": [{"id": each, "fields": {}} for each in _LAYERS]}
        writer.finalize(header | bounds, layers | metadata)  # type: ignore[no-untyped-call]
    return path


def _box(places: Sequence[Place]) -> tuple[float, float, float, float]:
    lngs, lats = zip(*places, strict=True)
    return min(lngs), min(lats), max(lngs), max(lats)


def _mercator(place: Place, zoom: int) -> Place:
    """Return x and y in tiles."""
    lng, lat = place
    y = (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2
    return (lng + 180) / 360 * 2**zoom, y * 2**zoom


def _tiles(box: tuple[float, float, float, float], zoom: int) -> Iterator[tuple[int, int, int]]:
    west, south, east, north = box
    (left, top), (right, bottom) = _mercator((west, north), zoom), _mercator((east, south), zoom)
    for x in range(int(left), int(right) + 1):
        for y in range(int(top), int(bottom) + 1):
            yield zoom, x, y


def _tile(shapes: Sequence[Shape], zoom: int, x: int, y: int) -> bytes:
    layers = dict[str, _Layer]()
    for shape in shapes:
        points = [
            (round((a - x) * _EXTENT), round((b - y) * _EXTENT)) for a, b in (_mercator(p, zoom) for p in shape.places)
        ]
        west, north, east, south = _box(points)
        if east >= 0 and west <= _EXTENT and south >= 0 and north <= _EXTENT:
            layers.setdefault(shape.layer, _Layer(shape.layer)).add(shape, points)
    return b"".join(_bytes(3, layer.encoded()) for layer in layers.values())


class _Layer:
    def __init__(self, name: str) -> None:
        self._name = name
        self._features: list[bytes] = []
        self._keys: dict[str, int] = {}
        self._values: dict[Any, int] = {}

    def add(self, shape: Shape, points: Sequence[tuple[int, int]]) -> None:
        tags = []
        for key, value in shape.properties.items():
            tags += [self._keys.setdefault(key, len(self._keys)), self._values.setdefault(value, len(self._values))]
        parts = [_bytes(2, b"".join(map(_varint, tags))), _number(3, shape.kind)]
        commands = b"".join(map(_varint, _commands(shape.kind, points)))
        self._features.append(b"".join([*parts, _bytes(4, commands)]))

    def encoded(self) -> bytes:
        values = [_bytes(1, each.encode()) if isinstance(each, str) else _number(5, each) for each in self._values]
        return b"".join(
            [
                _bytes(1, self._name.encode()),
                *(_bytes(2, each) for each in self._features),
                *(_bytes(3, each.encode()) for each in self._keys),
                *(_bytes(4, each) for each in values),
                _number(5, _EXTENT),
                _number(15, 2),
            ]
        )


def _commands(kind: int, points: Sequence[tuple[int, int]]) -> Iterator[int]:
    """MoveTo, LineTo and ClosePath, relative to the point before."""
    before = 0, 0
    for at, point in enumerate(points):
        if at == 0:
            yield 1 | 1 << 3
        elif at == 1:
            yield 2 | (len(points) - 1) << 3
        for now, old in zip(point, before, strict=True):
            yield (now - old) << 1 if now >= old else ((old - now) << 1) - 1
        before = point
    if kind == POLYGON:
        yield 7 | 1 << 3


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _bytes(tag: int, content: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(content)) + content
