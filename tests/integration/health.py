"""What a worker with `worker.listen` says of itself."""

import json
import urllib.error
import urllib.request
from typing import Any, Final

from tests.integration.harness import WorkerProcess

LISTEN: Final = {"worker": {"listen": "127.0.0.1:0"}}  # the port is in the log, so any number of workers can have it


def address(worker: WorkerProcess) -> str | None:
    """`host:port`, once it is in the log."""
    for line in worker.logged().splitlines():
        if '"serving metrics and health checks"' in line:
            found: str = json.loads(line)["address"]
            return found
    return None


def asked(worker: WorkerProcess, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body of `/livez` or `/readyz`; (0, {}) before it listens, and while it does not answer."""
    where = address(worker)
    if where is None:
        return 0, {}
    try:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=30.0) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
    except OSError:
        return 0, {}


def scraped(worker: WorkerProcess) -> str:
    """Its `/metrics`, once it listens."""
    with urllib.request.urlopen(f"http://{address(worker)}/metrics", timeout=30.0) as answer:
        assert answer.headers.get_content_type() == "text/plain"
        page: bytes = answer.read()
    return page.decode()


def is_ready(worker: WorkerProcess) -> bool:
    return asked(worker, "/readyz")[0] == 200


def missing(worker: WorkerProcess) -> dict[str, str]:
    """Part -> why it is not ready; empty where the worker is, or does not listen yet."""
    status, body = asked(worker, "/readyz")
    return {part: state for part, state in body["parts"].items() if state != "ok"} if status == 503 else {}
