"""The page on the loopback: the standard library's server, which answers whoever knows the address.

The address has a secret part: on a machine that others use too, they can reach the port but not the data. A
request must name this host, so that no page from elsewhere reads it under a name of its own. Only reading is
possible. The policy lets the page load its own files and nothing else.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from recension.core.errors import RecensionError, describe_error
from recension.inspector.export import modules, page_in_one_file, read_page_file

HOST: Final = "127.0.0.1"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "json": "application/json"}

# What a question of the page is answered by; its words are those of the address.
Answer = Callable[[dict[str, str]], dict[str, Any]]


class InspectorServer(ThreadingHTTPServer):
    """Serves the page and answers its questions, one at a time."""

    daemon_threads = True

    def __init__(self, answers: dict[str, Answer], port: int = 0) -> None:
        """``answers`` by name; ``data`` gives what the page shows."""
        self.answers, self.secret = answers, secrets.token_urlsafe(16)
        self.alone = threading.Lock()
        self.files = {
            "": ("html", read_page_file("index.html")),
            "style.css": ("css", read_page_file("style.css")),
        }
        self.files |= {name: ("js", text) for name, text in modules().items()}
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as why:
            raise RecensionError(
                f"port {port} on the loopback is not free ({why.strerror}): name another"
            ) from None

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/{self.secret}/"


class _Handler(BaseHTTPRequestHandler):
    server: InspectorServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A file of the page, the page in one file, or an answer."""
        try:
            asked = urlsplit(self.path)
        except ValueError as why:
            self._send(HTTPStatus.BAD_REQUEST, "html", f"This is no address: {why}.")
            return
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        root, _, name = asked.path.removeprefix("/").partition("/")
        if self.headers.get("Host") not in hosts or not secrets.compare_digest(
            root.encode(), self.server.secret.encode()
        ):
            self._send(HTTPStatus.NOT_FOUND, "html", "There is nothing here.")
        elif name in self.server.files:
            self._send(HTTPStatus.OK, *self.server.files[name])
        elif name in self.server.answers or name == "page.html":
            self._answer(name, {key: values[-1] for key, values in parse_qs(asked.query).items()})
        else:
            self._send(HTTPStatus.NOT_FOUND, "html", "There is nothing here.")

    def _answer(self, name: str, words: dict[str, str]) -> None:
        try:
            with self.server.alone:
                if name == "page.html":
                    page = page_in_one_file(self.server.answers["export"](words))
                    self._send(
                        HTTPStatus.OK,
                        "html",
                        page,
                        {"Content-Disposition": 'attachment; filename="page.html"'},
                    )
                    return
                found = self.server.answers[name](words)
            self._send(HTTPStatus.OK, "json", json.dumps(found))
        except RecensionError as why:
            self._send(HTTPStatus.BAD_REQUEST, "json", json.dumps({"error": str(why)}))
        except (ValueError, KeyError) as why:
            self._send(HTTPStatus.BAD_REQUEST, "json", json.dumps({"error": describe_error(why)}))
        except Exception as why:  # the page says it; the server goes on
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "json", json.dumps({"error": describe_error(why)}))

    def _send(self, status: HTTPStatus, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": f"{_TYPES[kind]}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is asked says what is looked at."""
