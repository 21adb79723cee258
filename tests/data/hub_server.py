"""The small part of the Hugging Face hub that a download needs, on 127.0.0.1, with faults on demand."""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RESOLVE = re.compile(r"/datasets/YYY-45/DSRL/resolve/(main|[0-9a-f]{40})/([^/?]+)")


@dataclass
class Hub:
    """What the server holds, what it does wrong, and what it was asked."""

    files: dict[str, bytes]
    announced: dict[str, str] = field(default_factory=dict)
    """Headers of the metadata that are not what they should be."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes each coming reply is cut off."""
    ranges: bool = True
    """Whether it can begin in the middle of a file."""
    lengths: bool = True
    """Whether it tells how long a file is before it sends it."""
    status: int = 0
    """Answers everything with this."""
    error_code: str = "EntryNotFound"
    """The hub's name of what a 404 means; empty as on a plain web server."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """(method, path, headers) of each request."""
    address: str = ""
    port: int = 0

    def gets(self) -> list[str]:
        """The Range of each request for bytes: "" for all of a file."""
        return [
            headers.get("range", "")
            for method, path, headers in self.requests
            if method == "GET" and path.startswith("/blobs/")
        ]


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            hub.requests.append((self.command, self.path, headers))
            found = RESOLVE.fullmatch(self.path)
            if hub.status:
                self.reply(hub.status, {})
            elif self.path.startswith("/blobs/") and body:
                self.blob(hub.files[self.path.removeprefix("/blobs/")], headers.get("range", ""))
            elif found is None or found[2] not in hub.files:
                self.reply(404, {"X-Error-Code": hub.error_code} if hub.error_code else {})
            else:
                content = hub.files[found[2]]
                facts = {
                    "X-Repo-Commit": COMMIT,
                    "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
                    "X-Linked-Size": str(len(content)),
                    # As on the hub, the bytes lie on another host than the facts.
                    "Location": f"http://localhost:{hub.port}/blobs/{found[2]}",
                }
                told = facts | hub.announced
                self.reply(302, {name: value for name, value in told.items() if value})

        def reply(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": "0"} | headers).items():
                self.send_header(name, value)
            self.end_headers()

        def blob(self, content: bytes, wanted: str) -> None:
            first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and hub.ranges else 0
            if first >= len(content) and first:
                self.reply(416, {})
                return
            self.send_response(206 if first else 200)
            if hub.lengths:
                self.send_header("Content-Length", str(len(content) - first))
            if first and hub.lengths:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            most = hub.cuts.pop(0) if hub.cuts else len(content)
            self.wfile.write(content[first : first + most])
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.port = server.server_address[1]
    hub.address = f"http://127.0.0.1:{hub.port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
