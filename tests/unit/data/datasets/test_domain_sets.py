from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from embasis.data.datasets.domain_sets import (
    GOOGLENET,
    OFFICE_CALTECH_CLASSES,
    PACK,
    PAIRS,
    SURF,
    find_data_folder,
    office_caltech10_googlenet,
    office_caltech10_surf,
    read_mat,
    unit_scores,
)
from embasis.errors import ConfigError, InputDataError

MAKERS = [office_caltech10_surf, office_caltech10_googlenet]


def mat(rows: int, features: int, row_labels: bool) -> bytes:
    labels = np.arange(rows) % 10 + 1
    counts = np.random.default_rng(rows).integers(0, 9, (rows, features)).astype(np.uint8)
    stream = io.BytesIO()
    savemat(stream, {"fts": counts, "labels": labels[None, :] if row_labels else labels[:, None]})
    return stream.getvalue()


def members() -> dict[str, bytes]:
    surf = {path: mat(20 + number, 12, False) for number, path in enumerate(SURF.values())}
    return surf | {path: mat(30 + number, 16, True) for number, path in enumerate(GOOGLENET.values())}


def write_pack(root: Path, content: dict[str, bytes]) -> None:
    with tarfile.open(root / f"{PACK}.tar", "w") as archive:
        for name, stored in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(stored)
            archive.addfile(info, io.BytesIO(stored))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_pack(tmp_path, members())
    return tmp_path


@pytest.mark.parametrize(("make", "name"), [(make, make.__name__) for make in MAKERS])
def test_every_pair_of_the_miniature_is_a_sound_problem(root, make, name):
    for source, target in PAIRS[name]:
        problem = make(root, source, target)
        assert problem.schema.names == OFFICE_CALTECH_CLASSES
        assert problem.labelled.x.dtype == problem.unlabelled.x.dtype == torch.float32
        assert (problem.unlabelled.labels == -1).all()
        assert torch.equal(problem.hidden_labels, torch.arange(len(problem.unlabelled)) % 10)
        assert len(problem.labelled.ids.unique()) == len(problem.labelled)


def test_there_are_twelve_pairs_of_surf_and_six_of_googlenet():
    assert [len(set(PAIRS[make.__name__])) for make in MAKERS] == [12, 6]


def test_surf_columns_have_mean_0_and_deviation_1_within_each_domain(root):
    problem = office_caltech10_surf(root)
    for side in (problem.labelled, problem.unlabelled):
        assert torch.allclose(side.x.mean(0), torch.zeros(12), atol=1e-5)
        assert torch.allclose(side.x.std(0, unbiased=False), torch.ones(12), atol=1e-5)


def test_rows_that_differ_by_a_factor_get_the_same_scores():
    counts = np.array([[1, 2, 1], [10, 20, 10], [4, 0, 4]], dtype=np.float32)
    scores = unit_scores(counts)
    assert np.allclose(scores[0], scores[1])


def test_empty_rows_and_constant_columns_stay_finite():
    assert np.isfinite(unit_scores(np.array([[0, 0, 0], [0, 5, 0]], dtype=np.float32))).all()
    assert (unit_scores(np.ones((4, 3), dtype=np.float32)) == 0).all()


def test_googlenet_features_stay_as_they_are(root):
    x = office_caltech10_googlenet(root).labelled.x
    assert torch.equal(x, x.round())
    assert x.max() == 8


@pytest.mark.parametrize("folder", [".", PACK])
def test_an_extracted_folder_gives_what_the_tar_gives(root, tmp_path_factory, folder):
    extracted = tmp_path_factory.mktemp("extracted")
    for name, stored in members().items():
        path = extracted / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored)
    assert torch.equal(office_caltech10_surf(extracted).labelled.x, office_caltech10_surf(root).labelled.x)


def test_the_variable_embasis_data_names_the_root(root, monkeypatch):
    monkeypatch.setenv("EMBASIS_DATA", str(root))
    assert find_data_folder(None) == root
    assert len(office_caltech10_surf().labelled) == 20
    monkeypatch.delenv("EMBASIS_DATA")
    assert find_data_folder(None) == Path("../shared/data")


@pytest.mark.parametrize("make", MAKERS)
def test_a_missing_pack_is_refused_with_what_to_do(tmp_path, make):
    with pytest.raises(InputDataError) as caught:
        make(tmp_path)
    assert str(caught.value) == (
        f"{make.__name__}: no file office_caltech10_surf_googlenet.tar in {tmp_path}; set --root or EMBASIS_DATA"
    )


def test_an_unknown_domain_is_refused_with_the_known_ones(root):
    with pytest.raises(ConfigError) as caught:
        office_caltech10_googlenet(root, source="caltech10")
    assert str(caught.value) == (
        "unknown domain of office_caltech10_googlenet 'caltech10'; known: amazon, dslr, webcam"
    )


def test_one_domain_cannot_be_both_sides(root):
    with pytest.raises(ConfigError) as caught:
        office_caltech10_surf(root, "dslr", "dslr")
    assert str(caught.value) == "office_caltech10_surf: source and target must differ, got 'dslr' twice"


def test_a_pack_without_the_domain_is_refused(tmp_path):
    write_pack(tmp_path, {"surf/webcam.mat": mat(20, 12, False)})
    with pytest.raises(InputDataError) as caught:
        office_caltech10_surf(tmp_path)
    assert str(caught.value) == (
        f"office_caltech10_surf: {tmp_path}/{PACK}.tar cannot be read: \"filename 'surf/amazon.mat' not found\""
    )


def test_labels_outside_1_to_10_are_refused(tmp_path):
    stream = io.BytesIO()
    savemat(stream, {"fts": np.ones((3, 2)), "labels": np.array([[1], [2], [11]])})
    write_pack(tmp_path, members() | {"surf/amazon.mat": stream.getvalue()})
    with pytest.raises(InputDataError) as caught:
        office_caltech10_surf(tmp_path)
    assert str(caught.value) == "office_caltech10_surf: labels of surf/amazon.mat must be in 1..10, got 1..11"


@pytest.mark.parametrize("damage", [lambda stored: b"", lambda stored: b"no mat" * 50, lambda stored: stored[:300]])
def test_a_damaged_mat_file_is_refused_by_name(tmp_path, damage):
    content = members()
    content["surf/amazon.mat"] = damage(content["surf/amazon.mat"])
    write_pack(tmp_path, content)
    with pytest.raises(InputDataError, match=r"^office_caltech10_surf: surf/amazon.mat in .* is not a .mat file with"):
        office_caltech10_surf(tmp_path)


def test_a_tar_that_is_none_is_refused(tmp_path):
    (tmp_path / f"{PACK}.tar").write_bytes(b"x" * 2000)
    with pytest.raises(InputDataError, match=r"^office_caltech10_surf: .*\.tar cannot be read: "):
        office_caltech10_surf(tmp_path)


def test_the_real_pack_has_the_published_sizes_and_class_counts():
    if not (find_data_folder(None) / f"{PACK}.tar").is_file():
        pytest.skip(f"the real pack {PACK}.tar is not in {find_data_folder(None)}; set EMBASIS_DATA to test on it")
    sizes = {"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295}
    for make, features in zip(MAKERS, (800, 1024), strict=True):
        for source, target in PAIRS[make.__name__]:
            problem = make(None, source, target)
            assert problem.labelled.x.shape == (sizes[source], features)
            assert problem.unlabelled.x.shape == (sizes[target], features)
            assert torch.isfinite(problem.labelled.x).all()
    assert torch.bincount(problem.hidden_labels).tolist() == [12, 21, 12, 13, 10, 24, 22, 12, 8, 23]
    assert problem.hidden_labels.dtype == torch.int64


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "u1", "i2", "u4", "i8"])
def test_our_reader_of_matrices_agrees_with_scipys(kind, packed):
    """scipy's own reader crashes the process on damaged files: the fuzzers would not end."""
    x = np.random.default_rng(0).integers(0, 100, (5, 3)).astype(kind)
    content = {"fts": x, "labels": x[:1, :1], "words": "abc", "cells": np.array(["a", 1], dtype=object)}
    savemat(stream := io.BytesIO(), content, do_compression=packed)
    found, expected = read_mat(stream.getvalue(), 2**20), loadmat(io.BytesIO(stream.getvalue()))
    assert set(found) == {"fts", "labels"}
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_matrix_that_unpacks_to_more_than_is_read_is_refused():
    savemat(stream := io.BytesIO(), {"fts": np.zeros((1000, 1000))}, do_compression=True)
    assert len(stream.getvalue()) < 20_000
    with pytest.raises(ValueError, match=r"^a part takes more than 1000 bytes unpacked$"):
        read_mat(stream.getvalue(), 1000)
