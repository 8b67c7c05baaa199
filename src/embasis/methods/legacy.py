"""Settings of version 0.1.0 that have another name now, or are fields of parts: so that its run folders load.

Only what reads a run folder's config uses `upgrade_settings`; a person who writes an old name is told the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embasis.errors import IncompatibleError, quoted, require

LEGACY_SETTINGS = {
    "keep": "keep_first",
    "step": "keep_step",
    "cap": "keep_max",
    "weight": "unlabelled_weight",
    "per_class": "components_per_class",
}
"""Old name → new name, of all methods that have it."""
START, HEAD, SELECTOR = "labeller.start", "labeller.head", "selector"
MOVED_SETTINGS: Mapping[str, tuple[str, Any]] = {
    "perplexity": ("labeller.mixture.perplexity", 0.0),
    "kernel": ("labeller.mixture.kernel", "dot"),
    "centring": ("labeller.mixture.centring", "domain"),
    "joint": ("labeller.mixture.guided", True),
    "start": (START, "class_means"),
    "carry": (START, False),
    "orthogonal": (f"{START}.orthogonal", 1.0),
    "reconstruction": (f"{START}.reconstruction", 1.0),
    "affinity": (f"{START}.affinity", 1.0),
    "head": (HEAD, "linear"),
    "head_penalty": (f"{HEAD}.penalty", 1e-3),
    "variance_weight": (f"{HEAD}.variance_weight", 0.0),
    "balance_weight": (f"{HEAD}.balance_weight", 1.0),
    "sigma": (f"{HEAD}.sigma", 0.0),
    "draws": (f"{HEAD}.draws", 0),
    "evidence": ("labeller.fusion.weight", 1.0),
    "temper": ("labeller.fusion.soften", True),
    "least_agreement": ("labeller.fusion.min_kappa", 0.35),
    "prior": ("labeller.fusion.class_priors", "auto"),
    "prior_strength": ("labeller.fusion.prior_strength", 1.0),
    "uncertainty": ("labeller.rank_by", "total_sum"),
    "select": (f"{SELECTOR}.selects", "class"),
    "labels": (f"{SELECTOR}.labels", "mode"),
    "temperature": (f"{SELECTOR}.temperature", 1.0),
    "weights": (f"{SELECTOR}.weights", "equal"),
    "floor": (f"{SELECTOR}.floor", 0.05),
}
"""Old setting of em_basis → the field of a part that it is now, and the value that does what em_basis does."""
RANKINGS = {"total_sum": "gini", "between_sum": "between"}
"""Kinds of uncertainty that are left."""


def upgrade_settings(method: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A [method] table with today's settings, and the changes of parts that its old ones ask for."""
    renamed = {LEGACY_SETTINGS.get(key, key): value for key, value in method.items()}
    if method.get("name", "em_basis") != "em_basis":
        return renamed, {}
    moved = {key: renamed.pop(key) for key in MOVED_SETTINGS if key in renamed}
    asked = {key: value for key, value in moved.items() if value != MOVED_SETTINGS[key][1]}
    changes = dict[str, Any]()
    for key, value in asked.items():
        path = MOVED_SETTINGS[key][0]
        if key == "uncertainty":
            changes[path] = ranking_of(value)
        elif path == START:
            changes[path] = "StageOne" if moved.get("start") == "stage1" else "WarmStart"
        elif path == HEAD:
            changes[path] = "CountHead"
        elif is_used(path, asked):
            changes[path] = value
    return renamed, changes


def is_used(path: str, asked: Mapping[str, Any]) -> bool:
    """Whether the part that has the field is there: weights of Stage I are nothing without it, nor are a count's."""
    if path.startswith(f"{START}."):
        return asked.get("start") == "stage1"
    return not path.startswith(f"{HEAD}.") or "head" not in asked


def ranking_of(kind: Any) -> str:
    """The ranking that an old kind of uncertainty is; an IncompatibleError for one that is not left."""
    rule = f"the run ranks its labels by uncertainty = {quoted(kind)}, which this version does not have"
    require(isinstance(kind, str) and kind in RANKINGS, f"{rule}; use version 0.1.0", IncompatibleError)
    return RANKINGS[kind]


def where_it_went(key: str) -> str | None:
    """A sentence for a setting that has another name now or is the field of a part; None for any other word."""
    if key in LEGACY_SETTINGS:
        return f"method.{key} is called method.{LEGACY_SETTINGS[key]} now"
    if key not in MOVED_SETTINGS:
        return None
    path, _ = MOVED_SETTINGS[key]
    python = f"in Python: embasis.methods.parts.replace_parts(method, {{{path!r}: …}})"
    return (
        f"method.{key} is no setting any more, it is the part {path} ({python}); em_basis_paper has the paper's parts"
    )
