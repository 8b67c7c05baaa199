"""What every restyler keeps, whatever it is: a method of METHODS with one is tested by being there."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from embasis.config import load
from embasis.data.segmentation.samples import MapArrays
from embasis.engine.restyling import Restyled, restyle_samples
from embasis.engine.self_train import begin, train_rounds
from embasis.errors import ConfigError, NumericalError
from embasis.methods import METHODS
from embasis.methods.restyling import cycada, parts
from embasis.runs.parts import RunParts, build
from embasis.types import Arrays, Problem, Restyler, RowChange, Samples
from map_runs import Kept, built_maps, draw_streets, kept_moments, little_streets, with_hidden
from training_runs import Saved, built_for, go_on, little_digits, same, saved_moments, toy

METHODS_THAT_RESTYLE = [name for name, recipe in METHODS.items() if recipe(3).restyle is not None]
CASES = [(name, kind) for name in METHODS_THAT_RESTYLE for kind in ("rows", "maps")]
QUICK: dict[str, dict[str, Any]] = {"cycada": {"steps": 6}, "fcan": {"iterations": 3}}
"""Settings that make a fit take a second."""
SHORT = {"rounds": 1, "source_epochs": 1, "epochs": 1}


def built(name: str, kind: str, problem: Problem | None = None, plan: Any = None, **own: Any) -> RunParts:
    """A short run on small digits, or on tiny pictures with label maps."""
    own = {**QUICK.get(name, {}), **own}
    if kind == "maps":
        return built_maps(problem, name, plan={**SHORT, **(plan or {})}, **own)
    return built_for(problem or little_digits(), "small_cnn", name, plan={**SHORT, **(plan or {})}, **own)


def restyler_of(made: RunParts) -> Restyler:
    assert made.method.restyle is not None
    return made.method.restyle


def finish(made: RunParts) -> Saved:
    """The run at its end."""
    states = [event.state for event in train_rounds(made.problem, made.network, made.method, made.plan)]
    return Saved.of(states[-1])


@functools.cache
def undisturbed(name: str, kind: str) -> Saved:
    return finish(built(name, kind))


@functools.cache
def learned(name: str, kind: str) -> dict[str, Tensor]:
    """What the restyler has learned."""
    return under("restyle/", undisturbed(name, kind).tensors)


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def off(name: str) -> dict[str, Any]:
    """The settings with which a method neither restyles nor aligns."""
    return {"weight": 0.0, **({"restyle": 0.0} if METHODS[name](3).align else {})}


@pytest.fixture(autouse=True)
def few_source_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SOURCE_STEPS", 10)
    monkeypatch.setattr(cycada, "STEPS_A_CALL", 2)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_weight_zero_is_source_only_to_the_bit_and_nothing_is_fitted(name: str, kind: str) -> None:
    none, source = finish(built(name, kind, **off(name))), finish(built("source_only", kind))
    assert same(under("network/", none.tensors), under("network/", source.tensors))
    assert not under("restyle/", none.tensors)
    assert not same(under("network/", undisturbed(name, kind).tensors), under("network/", source.tensors))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_same_seed_gives_the_same_dress_whatever_the_hidden_labels_are(name: str, kind: str) -> None:
    if kind == "maps":
        pictures, _ = draw_streets(9, 2, 45)
        problem = with_hidden(little_streets(), torch.zeros_like(pictures[:, 0]))
    else:
        whole = little_digits()
        assert whole.hidden_labels is not None
        problem = replace(whole, hidden_labels=whole.hidden_labels.roll(7))  # type: ignore[attr-defined]
    again = finish(built(name, kind, problem))
    assert learned(name, kind)
    assert same(undisturbed(name, kind).tensors, again.tensors)


@pytest.mark.parametrize("name", METHODS_THAT_RESTYLE)
def test_a_run_stopped_after_any_pause_ends_as_if_it_had_not_been(name: str) -> None:
    moments = saved_moments(built(name, "rows"))
    assert moments[0].cursor == (0, 0, 0)
    assert moments[-1].same(undisturbed(name, "rows"))
    for saved in moments[: -1 : max(len(moments) // 3, 1)]:
        assert go_on(saved, built(name, "rows")).same(moments[-1]), saved.cursor


@pytest.mark.parametrize("name", METHODS_THAT_RESTYLE)
def test_on_maps_a_run_that_is_stopped_goes_on_without_a_second_fit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = built(name, "maps")
    moments: list[Kept] = kept_moments(made)
    restyler = restyler_of(made)
    fitted = [kept for kept in moments if restyler.is_fitted(under("restyle/", kept.saved.tensors))]

    def refuse(*arguments: object) -> None:
        raise AssertionError("fitted twice")

    monkeypatch.setattr(type(restyler), "fit", refuse)
    assert fitted[0].saved.cursor == (0, 0, 0)
    assert fitted[0].end(built(name, "maps")).same(moments[-1].saved)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_labels_ids_and_shapes_stay_and_pictures_change(name: str, kind: str) -> None:
    made = built(name, kind)
    before: Samples = made.problem.labelled
    change = RowChange(restyler_of(made), learned(name, kind))
    after = restyle_samples(before, change)
    lazily = Restyled(before, change)
    rows = torch.arange(min(8, len(before)))
    assert torch.equal(before.ids, after.ids)
    assert torch.equal(before.labels, after.labels)
    assert torch.equal(before.counts(3), after.counts(3))
    old, new, read = (next(iter(samples.stream([rows], (0, 0, 0)))) for samples in (before, after, lazily))
    assert torch.equal(old.y, new.y)
    assert torch.equal(old.y, read.y)
    assert old.inputs.dtype == new.inputs.dtype == read.inputs.dtype
    assert old.inputs.shape == new.inputs.shape == read.inputs.shape
    assert not torch.equal(old.inputs, new.inputs)
    assert bool(torch.isfinite(new.inputs.float()).all())
    assert all(torch.equal(before.truth[row], after.truth[row]) for row in rows.tolist())


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_half_a_dress_lies_between_the_old_one_and_the_new_one(name: str, kind: str) -> None:
    made = built(name, kind)
    restyler, rows = restyler_of(made), made.problem.labelled.inputs(torch.arange(3))
    new, half = (RowChange(replace(restyler, weight=share), learned(name, kind))(rows) for share in (1.0, 0.5))
    assert torch.allclose(half.float(), (rows.float() + new.float()) / 2, atol=1.01 if kind == "maps" else 1e-5)


@pytest.mark.parametrize("name", METHODS_THAT_RESTYLE)
def test_the_dress_of_a_row_does_not_depend_on_the_rows_beside_it(name: str) -> None:
    made = built(name, "rows")
    change = RowChange(restyler_of(made), learned(name, "rows"))
    rows = made.problem.labelled.inputs(torch.arange(70))
    assert torch.equal(change(rows)[65:], change(rows[65:]))
    assert torch.equal(change(rows.flip(0)).flip(0), change(rows))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_held_out_rows_are_not_learned_from_but_are_restyled(name: str, kind: str) -> None:
    held = finish(built(name, kind, plan={"holdout": 0.3}))
    assert under("restyle/", held.tensors).keys() == learned(name, kind).keys()


@pytest.mark.parametrize("name", METHODS_THAT_RESTYLE)
def test_without_unlabelled_rows_it_is_supervised_training(name: str) -> None:
    whole = little_digits()
    nothing = replace(whole, unlabelled=Arrays.of(torch.zeros(0, 1, 8, 8)), hidden_labels=None)
    alone, source = (finish(built(each, "rows", nothing)) for each in (name, "source_only"))
    assert same(under("network/", alone.tensors), under("network/", source.tensors))


@pytest.mark.parametrize("name", METHODS_THAT_RESTYLE)
def test_vectors_are_refused_with_the_cure_or_restyled(name: str) -> None:
    made = built_for(toy(), "mlp", name, plan=SHORT, **QUICK.get(name, {}))
    if restyler_of(made).takes_vectors:
        assert under("restyle/", finish(made).tensors)
        return
    with pytest.raises(
        ConfigError, match=r"restyles pictures, and a row .* shape \(9,\); the setting restyle=0 leaves"
    ):
        finish(made)


@pytest.mark.parametrize("name", METHODS_THAT_RESTYLE)
def test_a_share_that_is_none_is_refused(name: str) -> None:
    key = "restyle" if METHODS[name](3).align else "weight"
    with pytest.raises(ConfigError, match=r"the share of the new style must be in 0 … 1, got 1.5"):
        METHODS[name](3, **{key: 1.5})


def test_what_is_not_finite_is_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    made = built("restyle", "rows")
    monkeypatch.setattr(
        type(restyler_of(made)), "fit", lambda *_: {"centre": torch.tensor(float("nan")), "scale": torch.ones(1)}
    )
    with pytest.raises(NumericalError, match=r"restyle: what was learned .* is not finite: centre"):
        finish(made)


def test_it_goes_beside_a_method_that_labels_and_beside_an_aligner() -> None:
    for method, align in (("em_basis", "restyle"), ("dann", "restyle"), ("restyle", "dann")):
        config = load(
            method={"name": method}, align={"name": align}, network={"name": "small_cnn", "width": 4, "features": 16},
            plan=SHORT,
        )  # fmt: skip
        made = build(little_digits(), config)
        assert made.method.name == method
        assert made.method.restyle is not None
        assert (made.method.align is not None) == ("dann" in (method, align))
        assert under("restyle/", finish(made).tensors)


def test_two_restylers_and_a_round_of_a_restyler_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"restyle aligns by itself: leave align.name=restyle out"):
        build(little_digits(), load(method={"name": "restyle"}, align={"name": "restyle"}))
    with pytest.raises(ConfigError, match=r"restyle acts before the first round alone: leave align.ends out"):
        build(little_digits(), load(method={"name": "em_basis"}, align={"name": "restyle", "ends": 1}))


def test_the_problem_of_the_caller_keeps_its_pictures() -> None:
    made = built("restyle", "maps")
    assert isinstance(made.problem.labelled, MapArrays)
    before = made.problem.labelled.pictures.clone()
    finish(made)
    assert torch.equal(made.problem.labelled.pictures, before)
    assert begin(made.network, made.method, made.plan).restyle == {}
