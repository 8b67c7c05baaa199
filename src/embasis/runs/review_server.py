"""The page of a review, served to the browser of the person at this machine and to nobody else.

| danger | what happens |
| --- | --- |
| another machine asks | the socket listens on the loopback address alone |
| another user of this machine, or a page of a stranger, asks | the address has 256 random bits; without them: 404 |
| a stranger's name that leads to this machine (DNS rebinding) | a Host that is no name of the loopback: 403 |
| a stranger's page sends an answer | an Origin that is not the page's own, or a body that is not JSON: 403, 415 |
| a body that never ends, or a client that never speaks | at most 64 kB are read, and a connection waits 30 s |
| thousands of connections | at most 64 are open at once, the next is closed |
| two tabs, or two reviews of one run | what was shown must be what is on disk, else nothing is written (409) |
| names and values with markup in them | the page gets them as JSON and sets them as text |
| a script of a stranger, or something from elsewhere | the page's policy allows its own script and this server |

| request | answer |
| --- | --- |
| GET /TOKEN/ | the page |
| GET /TOKEN/state | how many items there are, how many are decided, which comes next |
| GET /TOKEN/item/N | all that is known of item N |
| GET /TOKEN/picture/N, map/N, parts/N | its pictures |
| POST /TOKEN/decide, undo, finish | the next item, or the one that was undone |
"""

from __future__ import annotations

import json
import re
import secrets
import socketserver
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from embasis.errors import EmbasisError, InputDataError, ResourceError, quote, require
from embasis.report.review_page import ReviewPage
from embasis.runs.review import Review

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
LONGEST_BODY, PATIENCE = 2**16, 30.0
"""Bytes of an answer that are read, and seconds that a client may be silent."""
MOST_CONNECTIONS = 64
PICTURE_KINDS = ("picture", "map", "parts")


class RefusedRequest(Exception):  # noqa: N818 — it is an answer
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """Serves one review until a person has finished it; `address` is what to open."""

    daemon_threads = True

    def __init__(self, review: Review, port: int = 0) -> None:
        self.review, self.token, self.finished = review, secrets.token_urlsafe(32), threading.Event()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.page = ReviewPage(review.title, review.what, str(review.output), review.classes, self._colours())
        try:
            super().__init__((LOOPBACK, port), ReviewHandler)
        except OSError as error:
            raise ResourceError(f"port {port} of this machine cannot be had: {error.strerror or error}") from error

    def _colours(self) -> list[str]:
        colours = getattr(self.review, "colours", ())
        return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in colours]

    @property
    def address(self) -> str:
        """The page, with its token."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def server_bind(self) -> None:
        """Take the port; http.server would also ask a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or hang up where too many are at it."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was to be had
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing of a browser that has gone away."""


class ReviewHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: ReviewServer
    server_version, sys_version = "embasis", ""
    timeout = PATIENCE

    def log_message(self, format: str, *arguments: object) -> None:
        """Addresses hold the token: nothing is logged."""

    def do_GET(self) -> None:
        """Give the page or what it asks for."""
        self._answer(lambda: self._get(self._require_allowed()))

    def do_POST(self) -> None:
        """Take a decision."""
        self._answer(lambda: self._post(self._require_allowed()))

    def _require_allowed(self) -> list[str]:
        """The parts of the path behind the token; a request that may not come here is refused."""
        host = self.headers.get("Host", "")
        if len(self.headers.get_all("Host", [])) != 1 or host_name(host) not in LOOPBACK_NAMES:
            raise RefusedRequest(HTTPStatus.FORBIDDEN, "this page is for the machine that it is served on")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise RefusedRequest(HTTPStatus.FORBIDDEN, "another page has sent this")
        _, token, *parts = f"{url_path(self.path)}//".split("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            raise RefusedRequest(HTTPStatus.NOT_FOUND, "there is no such page")
        return [part for part in parts if part]

    def _get(self, parts: list[str]) -> tuple[str, bytes]:
        review = self.server.review
        if not parts:
            return "text/html; charset=utf-8", self.server.page.html.encode()
        if parts == ["state"]:
            return encode_answer(review.state())
        if len(parts) == 2 and parts[0] == "item":
            return encode_answer(review.describe(self._place(parts[1])))
        if len(parts) == 2 and parts[0] in PICTURE_KINDS:
            shown = review.picture(parts[0], self._place(parts[1]))
            return f"image/{shown.kind}", shown.data
        raise RefusedRequest(HTTPStatus.NOT_FOUND, "there is no such page")

    def _post(self, parts: list[str]) -> tuple[str, bytes]:
        review, body = self.server.review, self._body()
        if parts == ["decide"]:
            return encode_answer({"next": review.decide(self._place(body.get("place")), body), **review.state()})
        if parts == ["undo"]:
            place = review.undo()
            return encode_answer({**review.state(), "next": place})
        if parts == ["finish"]:
            self.server.finished.set()
            return encode_answer(review.state())
        raise RefusedRequest(HTTPStatus.NOT_FOUND, "there is no such page")

    def _place(self, text: object) -> int:
        count = len(self.server.review.items)
        number = int(str(text)) if re.fullmatch("[0-9]{1,9}", str(text)) else -1
        if not 0 <= number < count:
            raise RefusedRequest(HTTPStatus.NOT_FOUND, f"no item {quote(text)} of {count}")
        return number

    def _body(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise RefusedRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "an answer must be JSON")
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or len(size) > 9 or int(size) > LONGEST_BODY:
            raise RefusedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an answer has at most {LONGEST_BODY:,} bytes")
        try:
            body = json.loads(self.rfile.read(int(size)))
            require(isinstance(body, dict), "an answer must be a JSON object", InputDataError)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, "the answer is not JSON") from error
        return dict(body)

    def _answer(self, make: Any) -> None:
        try:
            status, (kind, data) = HTTPStatus.OK, make()
        except RefusedRequest as error:
            status, (kind, data) = error.status, encode_answer({"error": str(error)})
        except EmbasisError as error:  # what cannot be read or written is told to the person at the page
            status, (kind, data) = HTTPStatus.CONFLICT, encode_answer({"error": str(error)})
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # a bug of ours must not look as if the review had ended
            sentence = f"a bug of ours: {error!r}; what was answered before is saved"
            status, (kind, data) = HTTPStatus.INTERNAL_SERVER_ERROR, encode_answer({"error": sentence})
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": self.server.page.policy}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def host_name(host: str) -> str:
    """The name in a Host header, without its port; nothing where it cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if "@" not in host else ""
    except ValueError:
        return ""


def url_path(address: str) -> str:
    """The path of what a client asks for; nothing where it cannot be read."""
    try:
        return urlsplit(address).path
    except ValueError:
        return ""


def encode_answer(value: Mapping[str, Any]) -> tuple[str, bytes]:
    """Plain values for the page."""
    return "application/json", json.dumps(value, allow_nan=False).encode()
