"""`embasis review` for tests that speak to its page: in a process of its own, or here in a thread, which is quicker."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cli_tables import ENVIRONMENT, PROGRAM
from embasis.runs.open_review import ReviewOptions, open_review
from embasis.runs.review_server import ReviewServer


@dataclass
class ServedReview:
    """A review that is served, and the address of its page."""

    address: str

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a request; `path` stands behind the token, unless it begins with a slash."""
        place = urlsplit(self.address)
        client = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=60)
        data = None if body is None else json.dumps(body) if not isinstance(body, bytes) else body
        sent = {"Content-Type": "application/json"} if body is not None else {}
        wanted = path if path.startswith("/") else place.path + path
        client.request("GET" if body is None else "POST", wanted, data, {**sent, **headers})
        reply = client.getresponse()
        found = reply.status, reply.read(), dict(reply.getheaders())
        client.close()
        return found

    def value(self, path: str, body: Any = None) -> Any:
        """What is answered, as plain values."""
        status, data, _ = self.ask(path, body)
        assert status == 200, data
        return json.loads(data)


@dataclass
class ReviewProcess(ServedReview):
    """The command."""

    process: subprocess.Popen[str]

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, output and error output."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def interrupt(self) -> tuple[int, str, str]:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.end()


@contextmanager
def served(*words: str, **options: Any) -> Iterator[ServedReview]:
    """The review of these paths in the current folder, in a thread."""
    run, *rest = words
    with ReviewServer(open_review(run, ReviewOptions(*rest, **options))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield ServedReview(server.address)
        finally:
            server.shutdown()
            thread.join(30)


@contextmanager
def reviewed(home: Path, *words: object) -> Iterator[ReviewProcess]:
    """`embasis review WORDS` in this folder until the block ends."""
    command = [*PROGRAM, "review", *map(str, words)]
    process = subprocess.Popen(
        command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        found = re.search(r"http://127\.0\.0\.1:[0-9]+/[\w-]{43}/", lines[1])
        assert found, (lines, process.communicate())
        yield ReviewProcess(found[0], process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
