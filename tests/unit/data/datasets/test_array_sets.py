from __future__ import annotations

import numpy as np
import pytest
import torch

from embasis.data import DATASETS
from embasis.data.datasets.array_sets import GAS_DRIFT, WISDM, gas_drift, heart_disease, spoken_digits, wisdm
from embasis.data.datasets.domain_sets import PAIRS
from embasis.errors import ConfigError
from image_trees import ARRAY_SETS, array_pack, real_data, refusal

REAL = {
    "wisdm": (7292, 6), "gas_drift": (6697, 6), "heart_disease": (920, 2), "amazon_reviews": (7996, 2),
    "spoken_digits": (3000, 10),
}  # fmt: skip
"""Rows and classes of the whole sets."""


@pytest.mark.parametrize("name", ARRAY_SETS)
def test_every_pair_of_the_miniature_has_the_rows_of_its_two_domains(tmp_path, name):
    kind = ARRAY_SETS[name]
    stored = np.load(array_pack(tmp_path, kind) / kind.file)
    for source, target in PAIRS[name]:
        problem = DATASETS[name](tmp_path, source, target)
        for side, domain in ((problem.labelled, source), (problem.unlabelled, target)):
            assert set(stored["domain"][side.ids]) == {domain}
            assert len(side) == int((stored["domain"] == domain).sum())
            assert np.array_equal(side.x.flatten(1), stored["X"][side.ids].reshape(len(side), -1))
        assert np.array_equal(problem.labelled.labels, stored["y"][problem.labelled.ids])
        assert np.array_equal(problem.hidden_labels, stored["y"][problem.unlabelled.ids])
        assert (problem.unlabelled.labels == -1).all()
        assert problem.schema.names == kind.classes


def test_the_pairs_are_those_of_the_tables():
    assert {name: len(set(PAIRS[name])) for name in ARRAY_SETS} == {
        "wisdm": 10, "gas_drift": 7, "heart_disease": 12, "amazon_reviews": 12, "spoken_digits": 6,
    }  # fmt: skip
    assert PAIRS["wisdm"][0] == ("s07", "s18")
    assert PAIRS["wisdm"][-1] == ("s23", "s32")
    assert {source for source, _ in PAIRS["gas_drift"]} == {"batch01"}
    assert [target for _, target in PAIRS["spoken_digits"]] == [
        "jackson",
        "lucas",
        "nicolas",
        "theo",
        "yweweler",
        "george",
    ]
    for name, kind in ARRAY_SETS.items():
        assert {domain for pair in PAIRS[name] for domain in pair} <= set(kind.domains)


def test_vectors_stay_vectors_and_speech_becomes_a_picture_of_one_channel(tmp_path):
    for kind in ARRAY_SETS.values():
        array_pack(tmp_path, kind)
    assert heart_disease(tmp_path).labelled.x.shape[1:] == (13,)
    assert spoken_digits(tmp_path).unlabelled.x.shape[1:] == (1, 40, 48)


def test_classes_that_the_target_lacks_stay_classes_of_the_problem(tmp_path):
    y, domain = np.array([0, 1, 2, 5, 0, 2]), np.array(["s07"] * 4 + ["s18"] * 2)
    array_pack(tmp_path, WISDM, X=np.zeros((6, 42)), y=y, domain=domain)
    problem = wisdm(tmp_path)
    assert problem.schema.names == ("downstairs", "jogging", "sitting", "walking")
    assert problem.labelled.labels.tolist() == [0, 1, 2, 3]
    assert problem.hidden_labels.tolist() == [0, 2]
    assert problem.unlabelled.ids.tolist() == [4, 5]


def test_a_target_with_classes_that_the_source_lacks_is_refused_with_their_names(tmp_path):
    y, domain = np.array([5, 1, 2, 5, 3, 1]), np.array(["s07"] * 2 + ["s18"] * 4)
    array_pack(tmp_path, WISDM, X=np.zeros((6, 42)), y=y, domain=domain)
    assert refusal(lambda: wisdm(tmp_path)) == (
        "wisdm: s18 has classes that s07 lacks: 'sitting', 'standing'; take a source that has them"
    )
    array_pack(tmp_path, WISDM, X=np.zeros((6, 42)), y=np.full(6, 5), domain=domain)
    assert refusal(lambda: wisdm(tmp_path)) == "wisdm s07: at least 2 classes are needed, got 1 class: 'walking'"


@pytest.mark.parametrize("name", ARRAY_SETS)
def test_an_absent_file_is_refused_with_where_it_is_expected(tmp_path, name):
    assert refusal(lambda: DATASETS[name](tmp_path)) == (
        f"{name}: no file {ARRAY_SETS[name].file} in {tmp_path}; set --root or EMBASIS_DATA"
    )


def test_unknown_domains_and_one_domain_twice_are_refused(tmp_path):
    with pytest.raises(ConfigError) as caught:
        gas_drift(tmp_path, target="batch07")
    assert str(caught.value) == (
        "unknown domain of gas_drift 'batch07'; did you mean batch09? known: batch01, batch02, batch03, batch04, "
        "batch05, batch06, batch08, batch09"
    )
    with pytest.raises(ConfigError) as caught:
        gas_drift(tmp_path, target="batch01")
    assert str(caught.value) == "gas_drift: source and target must differ, got 'batch01' twice"


RULE = "X must be numbers (N, 128), y N whole numbers, domain N names, got"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": np.zeros((96, 127))}, f"{RULE} float64 (96, 127), int64 (96,), <U7 (96,)"),
        ({"X": np.array(3.0)}, f"{RULE} float64 (), int64 (96,), <U7 (96,)"),
        ({"X": np.full((96, 128), "a")}, f"{RULE} <U1 (96, 128), int64 (96,), <U7 (96,)"),
        ({"y": np.zeros(95, int)}, f"{RULE} float32 (96, 128), int64 (95,), <U7 (96,)"),
        ({"y": np.zeros(96)}, f"{RULE} float32 (96, 128), float64 (96,), <U7 (96,)"),
        ({"domain": np.arange(96)}, f"{RULE} float32 (96, 128), int64 (96,), int64 (96,)"),
        ({"y": np.full(96, 6)}, "y must be in 0..5, got 6..6"),
        ({"y": np.arange(96) % 6 - 1}, "y must be in 0..5, got -1..4"),
        (
            {"y": np.array([None] * 96)},
            "array 'y': holds Python objects (a pickle); only plain numbers and text are read",
        ),
        (
            {"X": np.full((96, 128), np.inf)},
            "X of batch01: values must be finite, got 1536 inf in 12 of 12 rows and 128 of 128 columns; "
            "first at row 0, column 0",
        ),
        (
            {"domain": None},
            "not a pack with X, y, domain: \"There is no item named 'domain.npy' in the archive\"",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_set_is_refused_with_what_it_must_be(tmp_path, changes, sentence):
    array_pack(tmp_path, GAS_DRIFT, **changes)
    assert refusal(lambda: gas_drift(tmp_path)) == f"{tmp_path / 'gas_drift.npz'}: {sentence}"


def test_a_file_without_the_domain_and_one_that_is_no_archive_are_refused(tmp_path):
    path = array_pack(tmp_path, GAS_DRIFT, domain=np.full(96, "batch01")) / "gas_drift.npz"
    assert refusal(lambda: gas_drift(tmp_path)) == f"gas_drift: {path} has no rows of batch02"
    path.write_bytes(b"no zip")
    assert refusal(lambda: gas_drift(tmp_path)) == f"{path}: not a pack with X, y, domain: File is not a zip file"


@pytest.mark.parametrize("name", ARRAY_SETS)
def test_the_real_sets_have_their_published_sizes(name):
    kind = ARRAY_SETS[name]
    root = real_data(kind.file)
    stored = np.load(root / kind.file)
    assert (len(stored["X"]), len(kind.classes)) == REAL[name]
    assert sorted(set(stored["domain"])) == sorted(kind.domains)
    for source, target in PAIRS[name]:
        problem = DATASETS[name](root, source, target)
        assert problem.schema.names == kind.classes
        assert torch.isfinite(problem.unlabelled.x).all()


def test_the_real_gases_and_activities_have_the_names_of_their_numbers():
    stored = np.load(real_data("gas_drift.npz") / "gas_drift.npz")
    assert tuple(name.lower() for name in stored["classes"]) == GAS_DRIFT.classes
    counts = np.bincount(np.load(real_data(WISDM.file) / WISDM.file)["y"])
    published = {"walking": 0.386, "jogging": 0.312, "upstairs": 0.112, "downstairs": 0.091, "sitting": 0.055}
    for name, share in published.items():
        assert counts[WISDM.classes.index(name)] / counts.sum() == pytest.approx(share, abs=0.01)


def test_real_people_who_lack_a_class_are_refused_as_sources_of_those_who_have_it():
    root = real_data(WISDM.file)
    assert refusal(lambda: wisdm(root, "s00", "s02")) == (
        "wisdm: s02 has classes that s00 lacks: 'sitting', 'standing'; take a source that has them"
    )
    assert wisdm(root, "s00", "s13").schema.names == ("downstairs", "jogging", "upstairs", "walking")
    assert len(wisdm(root, "s02", "s00").schema.names) == 6
