"""Degenerate numbers through every equation and the estimator; torture R6 draws ten thousand of the same cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import number_cases
from cli_tables import copied, embasis, write_tables
from embasis.engine.labels import BoundSelector, LabelBatch
from embasis.engine.round_checks import RoundWarnings
from embasis.errors import NumericalError
from embasis.functional import em, moments
from embasis.methods.selectors import ClassBalanced
from embasis.storage.checkpoints import list_generations, load_generation
from embasis.types import Arrays, Features, LabelDistribution, Labeller, State
from number_breakages import BREAKAGES
from training_runs import built_for, run, run_built, toy


@given(seed=st.integers(0, 2**31))
def test_every_equation_holds_on_degenerate_rows(seed: int) -> None:
    assert number_cases.faults_of(number_cases.draw_case(seed)) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_estimator_holds_on_degenerate_rows(seed: int) -> None:
    assert number_cases.estimator_faults(seed) == []


# --- deliberate breakages, and that the cases above find each


@pytest.mark.parametrize("name", BREAKAGES)
def test_the_cases_find_what_is_broken_on_purpose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, broken = BREAKAGES[name]
    monkeypatch.setattr(module, function, broken)
    assert any(number_cases.faults_of(number_cases.draw_case(seed)) for seed in range(60))


# --- weights and ties: what is noted of a round's labels


def labels_with(uncertainty: Tensor, weights: str = "equal") -> LabelBatch:
    """Labels of one class, trusted by half."""
    n = len(uncertainty)
    within = torch.stack([uncertainty / 2, uncertainty / 2], 1)
    mean = torch.tensor([[0.9, 0.1]]).repeat(n, 1)
    found = LabelDistribution(mean, torch.zeros(n, 2), within, uncertainty)
    selector = ClassBalanced(keep_first=0.5, weights=weights, floor=1e-4)
    choice = BoundSelector(selector, selector.fit([found], 0), 0, 0)
    return LabelBatch(torch.arange(n), (), found, torch.zeros(n), torch.arange(n) + 100, choice)


def noted(*parts: LabelBatch) -> list[str]:
    warnings = RoundWarnings(3)
    assert list(warnings.observe(parts)) == [*parts]
    return warnings.notes()


def test_labels_that_are_all_equally_sure_are_flagged_and_ids_decide() -> None:
    sentence = "labels of round 3 are equally sure: which of them are trusted is decided by a hash of their ids"
    part = labels_with(torch.full((40,), 0.25))
    assert noted(part, part) == [f"all 80 {sentence}"]
    assert 5 < int(part.pseudo.trusted.sum()) < 35
    assert noted(labels_with(torch.linspace(0, 1, 40))) == []
    assert noted(labels_with(torch.full((1,), 0.25))) == []


def test_components_that_the_rows_cannot_tell_apart_are_counted() -> None:
    """Row 45: more components than distinct points."""
    x, y = torch.eye(3)[torch.arange(30) % 3], torch.arange(30) % 3
    problem = replace(toy(), labelled=Arrays.of(x, y), unlabelled=Arrays.of(x), hidden_labels=None)
    found = run(problem, "linear", "em_basis", components_per_class=4).records
    sentence = "only 3 of 12 components of round {} differ: there are fewer distinct rows than components"
    assert [sentence.format(record.round) in record.notes for record in found] == [True] * 3
    assert all(1 <= record.facts["effective"] <= 12 for record in found)
    assert run(toy(), "linear", "em_basis", components_per_class=4).records[-1].notes == ()


def test_the_literal_variance_of_a_linear_head_is_flagged() -> None:
    """The paper's Var(f(x̂)) is W Wᵀ for every site, so it ranks nothing."""
    z, mu = em.responsibilities(torch.randn(40, 5), torch.randn(6, 5), 1.0), torch.randn(6, 5)
    weight, noise = torch.randn(2, 5), torch.randn(64, 5)
    spread = moments.literal_moments(z, mu, weight, torch.zeros(2), noise, softmax=False)[1].sum(1)
    torch.testing.assert_close(spread, spread[:1].expand(40), rtol=1e-4, atol=0)
    sentence = "labels of round 3 are equally sure: which of them are trusted is decided by a hash of their ids"
    assert noted(labels_with(spread[:1].expand(40))) == [f"all 40 {sentence}"]


def test_weights_that_are_cut_are_counted() -> None:
    """Var → 0 would give an infinite weight."""
    part = labels_with(torch.cat([torch.zeros(2), torch.full((38,), 0.9)]), "inverse_variance")
    trusted = int(part.pseudo.trusted.sum())
    cut = int((part.pseudo.weight == 10).sum() + (part.pseudo.weight == 0.1).sum())
    assert 0 < cut <= trusted
    assert noted(part) == [f"{cut} of {trusted} weights of round 3 were cut to [0.1, 10]"]
    assert noted(labels_with(torch.linspace(0.5, 0.6, 40), "inverse_variance")) == []


@dataclass(frozen=True)
class Broken(Labeller):
    """A labeller two of whose labels are no numbers."""

    where: str
    value: float

    def fit(self, *_: object) -> State:
        return {}

    def label(self, features: Features, state: State) -> LabelDistribution:
        mean = torch.full_like(features.scores, 1 / features.scores.shape[1])
        found = LabelDistribution(mean, torch.zeros_like(mean), mean * (1 - mean), torch.ones(len(mean)))
        getattr(found, self.where)[2:4] = self.value
        return found


@pytest.mark.parametrize("where", ["mean", "uncertainty"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_labels_that_are_not_finite_end_the_run_before_anything_is_selected(where: str, value: float) -> None:
    built = built_for(toy(), "linear", "cbst")
    built = replace(built, method=replace(built.method, labeller=Broken(where, value)))
    with pytest.raises(NumericalError) as caught:
        run_built(built)
    assert str(caught.value) == "the labels are not finite for 2 of 90 sites: ids 2, 3"


# --- a step that is not finite


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers")
    write_tables(path)
    return path


def generations(run_folder: Path) -> Iterator[Tensor]:
    for number in list_generations(run_folder):
        yield from load_generation(run_folder, number).tensors.values()


@pytest.mark.parametrize("settings", [("plan.source_lr=1e30",), ("plan.lr=1e30",), ("plan.lr=1e30", "optimiser=sgd")])
def test_training_that_blows_up_ends_with_code_6_and_publishes_nothing_that_is_not_finite(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    copied(tables, tmp_path / "here", monkeypatch)
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    words = ("fit", "labelled.csv", "judged.csv", "-o", "run", "--backbone", "mlp", "rounds=2", "save_seconds=0")
    result = embasis(*words, *settings)
    assert result.exit_code == 6, result.output
    first = int(settings[0].startswith("plan.lr"))
    assert f" in round {first} epoch " in result.stderr
    assert "; samples of the step: labelled " in result.stderr
    assert ("; unlabelled " in result.stderr) == bool(first)
    found = list(generations(Path("run")))
    assert found
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found)
    again = embasis(*words, *settings)
    assert (again.exit_code, again.stderr) == (6, result.stderr)
