"""Headers of all responses, and which pages may read the API (CORS) or frame the map.    [Fetch, CSP 3, RFC 6797]"""

from typing import Final

from aiohttp import web

from hatcast.agents.config.address import ANY_ORIGIN

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Server": "hatcast",
}
# Only where the viewer's connection has TLS, as its proxy says: browsers ignore it on others. Not for subdomains and
# not for preloading: those are the operator's to decide.
_ONLY_TLS: Final = "max-age=31536000"
_API: Final = "/api/"
_FRAMES: Final = "frame-ancestors 'none'"
_EXPOSED: Final = "ETag, Retry-After"
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Cache-Control, If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "86400",
}


class Access:
    """Access of pages of other origins. By default none may read the API from a script, or frame the map.

    headers   of all responses
    """

    def __init__(self, origins: tuple[str, ...] = (), frames: tuple[str, ...] = ()) -> None:
        """Args: those of `allow_origins` and `allow_framing`, parsed."""
        self._origins = frozenset(origins)
        self.headers = _with_frames(frames)

    def add_to(self, app: web.Application) -> None:
        """Add the headers to all responses, and answer preflight requests if an origin is allowed."""
        app.on_response_prepare.append(self._prepare)
        if self._origins:
            app.router.add_route("OPTIONS", f"{_API}{{path:.*}}", self._preflight)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self.headers)
        if request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https":
            response.headers["Strict-Transport-Security"] = _ONLY_TLS
        if not self._origins or not request.path.startswith(_API):
            return
        if ANY_ORIGIN in self._origins:
            response.headers["Access-Control-Allow-Origin"] = ANY_ORIGIN
        else:
            # Also without an Origin: a cache must not answer an allowed page with what it stored for another.
            vary = response.headers.get("Vary")
            response.headers["Vary"] = f"{vary}, Origin" if vary else "Origin"
            origin = request.headers.get("Origin")
            if origin not in self._origins or origin is None:
                return
            response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    async def _preflight(self, _: web.Request) -> web.Response:
        """Answer a browser that asks whether a page may send a request with these headers."""
        return web.Response(status=204, headers=_PREFLIGHT)


def _with_frames(frames: tuple[str, ...]) -> dict[str, str]:
    headers = dict(HEADERS)
    if frames:
        policy = headers["Content-Security-Policy"]
        headers["Content-Security-Policy"] = policy.replace(_FRAMES, f"frame-ancestors {' '.join(frames)}")
        del headers["X-Frame-Options"]  # it cannot name origins, and the policy has priority
        headers["Cross-Origin-Resource-Policy"] = "cross-origin"  # else pages that isolate themselves block the frame
    return headers
