"""Learners made of trees. scikit-learn grows them; what they say is computed here, from tensors that are stored.

| buffer | shape | meaning (functional/trees.py) |
| --- | --- | --- |
| feature, threshold, branches, roots | m, m, m 2, t | nodes of all trees |
| value | m v | what leaves say |
| baseline | k | of boosted trees; empty for a forest |

After each fit some rows are asked of both: a release of scikit-learn that keeps its trees otherwise is noticed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embasis.errors import ConfigError, CorruptError, InputDataError, NumericalError, require
from embasis.functional.trees import TreeNodes, boosted_probability, find_leaves, forest_probability, measure_depth
from embasis.networks.learner import FitKey, LearnerNetwork, WeightedRows

MOST_DEPTH = 512
COMPARED_ROWS, CLOSE = 256, 1e-6
"""Rows on which a fit is compared with scikit-learn's own answers, and how far these may be apart."""
ROWS_AT_ONCE = 512
BUFFERS = {
    "feature": torch.int32, "threshold": torch.float64, "branches": torch.int32, "roots": torch.int32,
    "value": torch.float64, "baseline": torch.float64,
}  # fmt: skip


class GrownTrees(NamedTuple):
    """Trees as arrays, each with its own numbers of nodes: left, right (−1 in a leaf), feature, threshold, value."""

    trees: list[tuple[Any, Any, Any, Any, Any]]
    baseline: Any


class TreeNetwork(LearnerNetwork):
    """Trees that `grow` makes of a seed; `read` takes the arrays out of a fitted classifier."""

    feature: Tensor
    threshold: Tensor
    branches: Tensor
    roots: Tensor
    value: Tensor
    baseline: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        grow: Callable[[int], Any],
        read: Callable[[Any], GrownTrees],
    ) -> None:
        super().__init__(shape, classes)
        self.grow, self.read, self.depth = grow, read, 0
        for name, kind in BUFFERS.items():
            self.register_buffer(name, torch.zeros((0, 2) if name == "branches" else (0,), dtype=kind))

    def fit_rows(self, rows: WeightedRows, key: FitKey) -> None:
        """Grow trees on these rows."""
        counts = torch.bincount(rows.y, minlength=self.classes)
        require(bool((counts > 0).all()), "every class needs a labelled row for a learner to be fitted", InputDataError)
        learner, x = self.grow(key.seed), rows.x.double().numpy()
        if "early_stopping" in learner.get_params() and int(counts.min()) < 2:
            learner.set_params(early_stopping=False)  # it would split each class in two
        learner.fit(x, rows.y.numpy(), sample_weight=rows.weight.numpy())
        self.take(join_trees(self.read(learner)))
        expected = torch.from_numpy(np.asarray(learner.predict_proba(x[:COMPARED_ROWS]), dtype=np.float64))
        apart = float((self.probability(rows.x[:COMPARED_ROWS]) - expected).abs().max())
        rule = f"the stored trees differ from those of {type(learner).__name__} by {apart:.1e}"
        cure = "this release of scikit-learn keeps trees otherwise: take another one, or network.name=mlp"
        require(apart < CLOSE, f"{rule}; {cure}", NumericalError)

    def probability(self, x: Tensor) -> Tensor:
        """(n, C) by the trees that are here, a few rows at a time."""
        require(len(self.roots) > 0, "the learner has not been fitted", CorruptError)
        nodes = TreeNodes(self.feature, self.threshold, self.branches)
        parts = []
        for part in x.split(ROWS_AT_ONCE):
            leaf = find_leaves(part, nodes, self.roots, self.depth)
            boosted = len(self.baseline) > 0
            p = (
                boosted_probability(leaf, self.value, self.baseline)
                if boosted
                else forest_probability(leaf, self.value)
            )
            parts.append(p)
        return torch.cat(parts)

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """These trees from now on; a CorruptError for what is none."""
        refuse_trees(tensors, self.features, self.classes)
        for name in BUFFERS:
            setattr(self, name, tensors[name].detach().clone())
        self.depth = measure_depth(self.branches, self.roots, MOST_DEPTH)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Trees of any size; a network's weights have one."""
        missing = rest[2]
        missing += [prefix + name for name in BUFFERS if prefix + name not in state_dict]
        if not missing:
            held = {name: state_dict[prefix + name] for name in BUFFERS}
            if len(held["roots"]):
                self.take(held)


def join_trees(grown: GrownTrees) -> dict[str, Tensor]:
    """All trees in one set of tensors, node numbers counted on from tree to tree."""
    columns: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "branches", "value")}
    roots, start = list[int](), 0
    for left, right, feature, threshold, value in grown.trees:
        own, leaf = np.arange(len(left)), np.asarray(left) < 0
        sides = [np.where(leaf, own, side) + start for side in (left, right)]
        columns["branches"].append(np.stack(sides, 1))
        columns["feature"].append(np.where(leaf, 0, feature))
        columns["threshold"].append(np.where(leaf, 0.0, threshold))
        columns["value"].append(np.where(leaf[:, None], value, 0.0))
        roots.append(start)
        start += len(left)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    joined |= {"roots": np.array(roots), "baseline": np.asarray(grown.baseline)}
    return {name: torch.from_numpy(joined[name].copy()).to(kind) for name, kind in BUFFERS.items()}


def refuse_trees(tensors: Mapping[str, Tensor], features: int, classes: int) -> None:
    """A CorruptError for tensors that are no trees of rows with so many features and classes."""
    damaged = "the learner's trees are damaged"
    for name, kind in BUFFERS.items():
        require(tensors[name].dtype == kind, f"{damaged}: {name} is {tensors[name].dtype}", CorruptError)
    feature, threshold, branches, roots, value, baseline = (tensors[name] for name in BUFFERS)
    count, steps = len(feature), len(baseline)
    shapes = {"threshold": (count,), "branches": (count, 2), "value": (count, 1 if steps else classes)}
    wrong = [name for name, shape in shapes.items() if tuple(tensors[name].shape) != shape]
    require(not wrong, f"{damaged}: {', '.join(wrong)} have other sizes than feature", CorruptError)
    plain = feature.ndim == roots.ndim == baseline.ndim == 1 and count > 0 and len(roots) > 0
    whole = steps == 0 or (steps == (1 if classes == 2 else classes) and len(roots) % steps == 0)
    require(
        plain and whole, f"{damaged}: {len(roots)} trees with {steps} baselines for {classes} classes", CorruptError
    )
    finite = all(bool(part.isfinite().all()) for part in (threshold, value, baseline))
    require(finite, f"{damaged}: a threshold or a value is not finite", CorruptError)
    require(bool(((feature >= 0) & (feature < features)).all()), f"{damaged}: a feature is not there", CorruptError)
    own = torch.arange(count, dtype=torch.int32).unsqueeze(1)
    leaf, inner = (branches == own).all(1), ((branches > own) & (branches < count)).all(1)
    below = bool((leaf | inner).all()) and bool(((roots >= 0) & (roots < count)).all())
    require(below, f"{damaged}: a node leads to none below it", CorruptError)
    depth = measure_depth(branches, roots, MOST_DEPTH)
    require(depth <= MOST_DEPTH, f"{damaged}: they are deeper than {MOST_DEPTH}", CorruptError)


def read_boosting(learner: Any) -> GrownTrees:
    """The trees of HistGradientBoostingClassifier, step after step."""
    steps = [tree.nodes for step in learner._predictors for tree in step]
    trees = []
    for nodes in steps:
        leaf = nodes["is_leaf"] > 0
        left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
        trees.append((left, right, nodes["feature_idx"], nodes["num_threshold"], nodes["value"][:, None]))
    return GrownTrees(trees, learner._baseline_prediction.ravel())


def read_forest(learner: Any) -> GrownTrees:
    """The trees of RandomForestClassifier and ExtraTreesClassifier."""
    grown = [member.tree_ for member in learner.estimators_]
    trees = [(t.children_left, t.children_right, t.feature, t.threshold, t.value[:, 0, :]) for t in grown]
    return GrownTrees(trees, np.zeros(0))


def check_least(least: Mapping[str, float], settings: Mapping[str, Any]) -> None:
    """A ConfigError for settings below their least value."""
    for name, value in least.items():
        rule = f"learner.{name} must be at least {value}, got {settings[name]}"
        require(settings[name] >= value, rule, ConfigError)


def depth_of(max_depth: int) -> int:
    """A depth that trees may have; 0 = what can be stored."""
    rule = f"learner.max_depth must be 0 (no limit) or in 1 … {MOST_DEPTH}, got {max_depth}"
    require(0 <= max_depth <= MOST_DEPTH, rule, ConfigError)
    return max_depth or MOST_DEPTH


def make_learner(kind: str, settings: Mapping[str, Any], seed: int) -> Any:
    """A classifier of scikit-learn's ensembles by name, with these settings and this seed.

    scikit-learn is imported here: commands that fit nothing need not wait for it."""
    return getattr(import_module("sklearn.ensemble"), kind)(**settings, random_state=seed)


def hist_gradient_boosting(
    shape: tuple[int, ...],
    classes: int,
    *,
    max_iter: int = 100,
    learning_rate: float = 0.1,
    max_leaf_nodes: int = 31,
    max_depth: int = 0,
    min_samples_leaf: int = 20,
    l2_regularization: float = 0.0,
) -> TreeNetwork:
    """Gradient boosting on histograms of the columns (scikit-learn's HistGradientBoostingClassifier)."""
    settings = {
        "max_iter": max_iter, "learning_rate": learning_rate, "max_leaf_nodes": max_leaf_nodes,
        "max_depth": depth_of(max_depth), "min_samples_leaf": min_samples_leaf, "l2_regularization": l2_regularization,
    }  # fmt: skip
    check_least({"max_iter": 1, "max_leaf_nodes": 2, "min_samples_leaf": 1, "l2_regularization": 0}, settings)
    require(learning_rate > 0, f"learner.learning_rate must be positive, got {learning_rate}", ConfigError)
    return TreeNetwork(shape, classes, partial(make_learner, "HistGradientBoostingClassifier", settings), read_boosting)


def random_forest(
    shape: tuple[int, ...], classes: int, *, n_estimators: int = 100, max_depth: int = 0, min_samples_leaf: int = 5
) -> TreeNetwork:
    """Trees of draws of the rows, and their mean (scikit-learn's RandomForestClassifier)."""
    settings = forest_settings(n_estimators, max_depth, min_samples_leaf)
    return TreeNetwork(shape, classes, partial(make_learner, "RandomForestClassifier", settings), read_forest)


def extra_trees(
    shape: tuple[int, ...], classes: int, *, n_estimators: int = 100, max_depth: int = 0, min_samples_leaf: int = 5
) -> TreeNetwork:
    """Trees with drawn thresholds, and their mean (scikit-learn's ExtraTreesClassifier)."""
    settings = forest_settings(n_estimators, max_depth, min_samples_leaf)
    return TreeNetwork(shape, classes, partial(make_learner, "ExtraTreesClassifier", settings), read_forest)


def forest_settings(n_estimators: int, max_depth: int, min_samples_leaf: int) -> dict[str, int]:
    """The settings of a forest, checked."""
    settings = {
        "n_estimators": n_estimators, "max_depth": depth_of(max_depth), "min_samples_leaf": min_samples_leaf,
    }  # fmt: skip
    check_least({"n_estimators": 1, "min_samples_leaf": 1}, settings)
    return settings
