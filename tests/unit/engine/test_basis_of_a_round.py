"""What the components of a basis stand for: shares add up, the nearest rows are the nearest, nothing is said twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from embasis.engine.scores import NEAREST, summarise_basis
from embasis.errors import CorruptError
from embasis.methods.baselines import SoftmaxLabeller
from embasis.methods.em_basis import ClassMeans, EMBasisLabeller, Mixture
from embasis.report.collect import basis_name, pack_basis, read_components
from embasis.storage import SealedFiles, read_newest
from embasis.types import Features
from folder_runs import config, go
from map_runs import little_streets
from training_runs import toy

CLASSES, WIDTH, ROWS = 3, 6, 50


def features(rows: int = ROWS, labelled: bool = False, seed: int = 0) -> Features:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % CLASSES
    x = torch.randn(rows, WIDTH, generator=draw) + 3 * torch.nn.functional.one_hot(y, WIDTH)
    ids = 10 * torch.arange(rows) + 3
    return Features(x, x[:, :CLASSES], y if labelled else torch.full((rows,), -1), ids)


def cut(part: Features, size: int) -> list[Features]:
    columns = zip(*(column.split(size) for column in (part.x, part.scores, part.y, part.ids)), strict=True)
    return [Features(*piece) for piece in columns]


def fitted(kernel: str = "dot"):  # type: ignore[no-untyped-def]
    labeller = EMBasisLabeller(CLASSES, ClassMeans(2), Mixture(kernel=kernel))
    return labeller, labeller.fit([features(labelled=True, seed=1), features()], {}, 0, 0)


@pytest.mark.parametrize("kernel", ["dot", "gaussian"])
def test_it_says_what_plain_loops_say(kernel: str) -> None:
    labeller, state = fitted(kernel)
    look = summarise_basis(labeller, [features()], state, many_sites=False)
    assert look is not None
    part = features()
    x = (part.x.double() - state["centre"][1]) / state["scale"][1]
    x = (x / x.norm(dim=1, keepdim=True)).float()
    for k, mu in enumerate(state["mu"]):
        scores = [float(row @ mu) - (float(mu @ mu) / 2 if kernel == "gaussian" else 0) for row in x]
        order = sorted(range(ROWS), key=lambda row: -scores[row])[:NEAREST]
        assert look.nearest[k].tolist() == [int(part.ids[row]) for row in order]
    z = labeller.component_scores(part, state).softmax(1)
    assert look.share.tolist() == pytest.approx([float(z[:, k].mean()) for k in range(len(state["mu"]))], abs=1e-6)
    assert float(look.share.sum()) == pytest.approx(1, abs=1e-5)
    assert torch.equal(look.p, state["p"])


@pytest.mark.parametrize("size", [1, 3, 7, ROWS])
def test_chunks_change_nothing(size: int) -> None:
    labeller, state = fitted()
    whole = summarise_basis(labeller, [features()], state, many_sites=False)
    parts = summarise_basis(labeller, cut(features(), size), state, many_sites=False)
    assert whole is not None
    assert parts is not None
    assert torch.equal(whole.nearest, parts.nearest)
    assert torch.allclose(whole.share, parts.share, atol=1e-6)


def test_a_site_that_stands_for_two_counts_as_two() -> None:
    labeller, state = fitted()
    part = features()
    twice = Features(*(torch.cat([c, c]) for c in (part.x, part.scores, part.y, part.ids)))
    weighted = replace(part, weight=torch.full((ROWS,), 2.0))
    first, second = (summarise_basis(labeller, [found], state, many_sites=True) for found in (twice, weighted))
    assert first is not None
    assert second is not None
    assert torch.allclose(first.share, second.share, atol=1e-6)
    assert first.nearest.shape == (len(state["mu"]), 0)


def test_fewer_rows_than_are_named_are_all_named() -> None:
    labeller, state = fitted()
    look = summarise_basis(labeller, [features(2)], state, many_sites=False)
    assert look is not None
    assert look.nearest.shape == (len(state["mu"]), 2)


def test_a_labeller_without_a_basis_and_a_side_without_rows_have_no_look() -> None:
    labeller, state = fitted()
    assert summarise_basis(SoftmaxLabeller(), [features()], {}, many_sites=False) is None
    assert summarise_basis(labeller, [], state, many_sites=False) is None
    assert summarise_basis(labeller, [features(0)], state, many_sites=False) is None


# in the run folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("basis") / "run"
    go(path, config())
    return path


def files_of(run: Path) -> SealedFiles:
    return SealedFiles(run, read_newest(run).sealed)


def test_every_round_writes_its_basis_and_the_report_reads_that_of_the_kept_one(run: Path) -> None:
    assert sorted(file.name for file in (run / "basis").iterdir()) == [f"round-{n:03d}.json" for n in range(3)]
    written = json.loads((run / basis_name(2)).read_text())["components"]
    read = read_components(files_of(run), 2, {})
    assert len(read) == len(written)
    for component, facts in zip(read, written, strict=True):
        assert [list(pair) for pair in component.classes] == facts["classes"]
        assert component.share == facts["share"]
        assert [name for name, _ in component.nearest] == facts["nearest"]
        assert [p for _, p in component.classes] == sorted((p for _, p in component.classes), reverse=True)
    assert sum(component.share for component in read) == pytest.approx(1, abs=1e-4)
    ids = {str(number) for number in toy().unlabelled.ids.tolist()}
    assert {name for component in read for name, _ in component.nearest} <= ids


def test_pictures_are_found_by_the_names_of_rows(run: Path) -> None:
    name = read_components(files_of(run), 2, {})[0].nearest[0][0]
    assert (name, b"picture") in read_components(files_of(run), 2, {name: b"picture"})[0].nearest


def test_a_run_without_a_basis_has_none(run: Path) -> None:
    assert read_components(files_of(run), 77, {}) == ()


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"components": 3}', '{"components": [{"share": 1}]}', '{"components": [[]]}', "no"]
)
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "basis").mkdir()
    (tmp_path / basis_name(0)).write_text(text)
    with pytest.raises(CorruptError, match=r"round-000\.json is not "):
        read_components(SealedFiles(tmp_path, None), 0, {})


def test_sites_of_label_maps_are_not_named() -> None:
    labeller, state = fitted()
    look = summarise_basis(labeller, [features()], state, many_sites=True)
    assert look is not None
    facts = pack_basis(look, little_streets())
    assert {len(row["nearest"]) for row in facts["components"]} == {0}
