"""`embasis review`: the least sure labels of a run on a local page, and what a person says of them in a file."""

from __future__ import annotations

import threading
from pathlib import Path

from embasis.cli.console import echo, format_count, quote_path
from embasis.errors import Interrupted
from embasis.runs.open_review import ReviewOptions, open_review
from embasis.runs.review import Review
from embasis.runs.review_server import ReviewServer
from embasis.terminal import Stop

POLL_SECONDS = 0.2
"""How often a signal is noticed."""


def review_run(run: str, unlabelled: str | None, output: str | None, port: int, follow_links: bool) -> None:
    """Serve the page until the person has finished, or a signal comes; every decision is on disk before the next."""
    with Stop() as stop:
        review = open_review(run, ReviewOptions(unlabelled, output, follow_links))
        with ReviewServer(review, port) as server:
            threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
            state = review.state()
            echo(f"{state['total']:,} {review.what}, {state['decided']:,} decided; the least sure first")
            echo(f"open {server.address} in a browser of this machine; Ctrl-C ends")
            while not server.finished.wait(POLL_SECONDS) and not stop.code:
                pass
            server.shutdown()
    summary = describe_decisions(review)
    if stop.code:
        raise Interrupted(f"interrupted; {summary}; the same command goes on", stop.code)
    echo(summary)
    if review.state()["decided"]:
        echo(f"next: embasis fit LABELLED UNLABELLED -o NEW --corrections {quote_path(Path(review.output))}")


def describe_decisions(review: Review) -> str:
    """How many decisions there are, and where."""
    state, unit = review.state(), review.what.removesuffix("s")
    done, left = (format_count(number, unit) for number in (state["decided"], state["total"] - state["decided"]))
    return f"{done} decided{f' in {review.output}' if state['decided'] else ''}, {left} left"
