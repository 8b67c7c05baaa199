"""What tests share: records, scores and run views for pages."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

from embasis.benchmark.scores import RunScore
from embasis.report import RunView
from embasis.types import Evaluation, RoundRecord

BENIGN = ("cat", "dog", "owl")


HOSTILE = (
    ("<script>alert(1)</script>", '"onerror="alert(1)', "</title><img src=x onerror=alert(1)>"),
    ("\u202egpj.exe", "\x1b[31mred\x1b]0;title\x07", "a\u2066b\u2069\u200f"),
    ("</style><style>*{}", "javascript:alert(1)", "{{ 7*7 }}{% raw %}"),
    ("$\\frac{1}{0$", "]]><svg onload=x>", "&lt;b&gt;&#x27;"),
    ("\ud800", "\uffff", "\u2028\n\r\t\0"),
    ("猫", "कुत्ता", "🦉" * 40),
)


def evaluation(accuracy: float = 0.75) -> Evaluation:
    right = round(accuracy * 4)
    return Evaluation(
        rows=12,
        accuracy=accuracy,
        mean_class_accuracy=accuracy,
        network_accuracy=accuracy - 0.05,
        ece=0.1,
        nll=0.7,
        auroc=None if accuracy == 1 else 0.8,
        trusted_share=0.5,
        trusted_precision=0.9,
        confusion=((right, 4 - right, 0), (0, right, 4 - right), (4 - right, 0, right)),
        reliability=((0.0, 0.0, 0.0), (4.0, 2.2, 2.0), (8.0, 7.2, 7.0)),
        risk_coverage=((0.25, 0.0), (0.5, 0.1), (1.0, 1 - accuracy)),
    )


def record(number: int = 0, truth: bool = True) -> RoundRecord:
    return RoundRecord(
        round=number,
        status="ok",
        loss=0.5 / (number + 1),
        unlabelled=12,
        trusted=6,
        class_counts=(5, 4, 3),
        trusted_counts=(2, 2, 2),
        changed=0.25,
        scores={"agreement": 0.5 + 0.1 * number, "information": 1.0},
        facts={"sharpness": 2.0},
        evaluation=evaluation(0.5 + 0.25 * (number > 0)) if truth else None,
        test=evaluation() if truth else None,
        notes=("a note",),
    )


def view(classes: tuple[str, ...] = BENIGN, truth: bool = True, rounds: int = 3) -> RunView:
    labels = {
        "id": list(range(12)),
        "label": [classes[i % 3] for i in range(12)],
        "probability": [0.5 + i / 24 for i in range(12)],
        "between": [0.01 * i for i in range(12)],
        "within": [0.02] * 12,
        "trusted": [i > 5 for i in range(12)],
        "drawn": [classes[i % 3] for i in range(12)],
    }
    return RunView(
        config={"dataset": classes[0], "method": {"name": "em_basis", "K": 8}, "data": {"root": "/srv/private/set"}},
        environment={"python": "3.11", "hostname": "secret-host", "note": "made in /home/jane/work"},
        rounds=tuple(record(i, truth) for i in range(rounds)),
        timings=[{"round": i, "stage": stage, "seconds": 1.5} for i in range(rounds) for stage in ("label", "train")],
        labels=labels,
        status="done",
        best_round=1,
        classes=classes,
    )


def score(method: str = "em", seed: int = 0, pair: str = "a", accuracy: float = 0.9, **other: object) -> RunScore:
    row = RunScore("set", pair, method, seed, accuracy, accuracy, 0.1, 0.5, 0.8, 0.6, 0.95, accuracy, 12.0)
    return dataclasses.replace(row, **other)  # type: ignore[arg-type]


def many(seeds: int = 5) -> list[RunScore]:
    names = ("source_only", "em_basis_without_uncertainty", "a|b_*c*", "=cmd", "em_basis")
    return [
        score(m, s, p, 0.8 + 0.02 * i + 0.001 * s, seconds=1234.5)
        for i, m in enumerate(names)
        for s in range(seeds)
        for p in "ab"
    ]


class Tree(HTMLParser):
    """Elements and attribute names in order, and the texts of the style and the script element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[object] = []
        self.values: list[tuple[str, str, str]] = []
        self.style, self.script, self._open = "", "", ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(tag, name, value or "") for name, value in attrs]
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open == "style" and not self.style:
            self.style = data
        if self._open == "script" and not self.script:
            self.script = data
