"""An agency with one vehicle, as GTFS Realtime over HTTP."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.transit.gtfs_realtime_pb2 import FeedMessage


class Agency(BaseHTTPRequestHandler):
    """Answers with the position of one vehicle, now."""

    def do_GET(self) -> None:
        message = FeedMessage()
        message.header.gtfs_realtime_version = "2.0"
        vehicle = message.entity.add(id="1").vehicle
        vehicle.vehicle.id = "v1"
        vehicle.timestamp = int(time.time())
        vehicle.position.latitude, vehicle.position.longitude, vehicle.position.speed = 21.2, 72.8, 9.0
        self.send_response(200)
        self.end_headers()
        self.wfile.write(message.SerializeToString())

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is for its own."""


@contextmanager
def agency() -> Iterator[str]:
    """The address of an agency's positions."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Agency) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/positions.pb"
        finally:
            server.shutdown()
            thread.join()
