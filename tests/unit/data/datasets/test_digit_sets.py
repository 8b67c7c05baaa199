from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embasis.data import DATASETS
from embasis.data.datasets.digit_sets import DIGIT_STYLES, blobs, digits, mnist_usps, moons, render
from embasis.errors import ConfigError
from image_trees import digit_packs, real_data, refusal


@pytest.fixture(scope="module")
def small():
    return digits(count=1000)


def test_digits_are_8_by_8_sixteenths_on_both_sides(small):
    for side in (small.labelled, small.unlabelled):
        assert side.x.shape[1:] == (1, 8, 8)
        assert side.x.dtype == torch.float32
        assert torch.equal((side.x * 16).round() / 16, side.x)
        assert side.x.min() >= 0
        assert side.x.max() == 1


def test_the_virtual_digits_are_balanced_and_every_one_has_ink(small):
    assert torch.bincount(small.labelled.labels).tolist() == [100] * 10
    assert small.schema.names == tuple("0123456789")
    assert (small.labelled.x.sum((1, 2, 3)) > 1).all()


def test_the_real_digits_keep_their_labels_hidden(small):
    assert len(small.unlabelled) == 1797
    assert (small.unlabelled.labels == -1).all()
    assert small.hidden_labels.unique().tolist() == list(range(10))


def test_the_same_seed_draws_the_same_digits_and_another_seed_others():
    ids = torch.arange(200)
    assert torch.equal(render(ids, 3)[0], render(ids, 3)[0])
    assert not torch.equal(render(ids, 3)[0], render(ids, 4)[0])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30, unique=True), st.integers(0, 2**31))
def test_a_virtual_digit_depends_on_its_id_and_seed_alone(ids, seed):
    together, labels = render(torch.tensor(ids), seed)
    alone, label = render(torch.tensor(ids[-1:]), seed)
    assert torch.equal(together[-1:], alone)
    assert labels[-1] == label[0] == ids[-1] % 10


def test_five_thousand_digits_take_under_two_seconds():
    start = time.process_time()
    render(torch.arange(5000), 0)
    assert time.process_time() - start < 2


def test_every_stroke_lies_near_the_unit_square():
    for styles in DIGIT_STYLES:
        for stroke in (stroke for strokes in styles for stroke in strokes):
            assert np.min(stroke) >= -0.15
            assert np.max(stroke) <= 1.15


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_logistic_regression_gets_about_six_in_ten_of_the_real_digits(seed):
    from sklearn.linear_model import LogisticRegression

    problem = digits(seed, count=2000)
    model = LogisticRegression(C=1, solver="newton-cg")
    model.fit(problem.labelled.x.flatten(1).numpy(), problem.labelled.labels.numpy())
    assert 0.55 < model.score(problem.unlabelled.x.flatten(1).numpy(), problem.hidden_labels.numpy()) < 0.68


def test_fewer_than_ten_digits_are_refused():
    with pytest.raises(ConfigError, match=r"^digits: count must be at least 10, got 9$"):
        digits(count=9)


def test_blobs_are_moved_by_the_shift_and_by_nothing_else():
    still, moved = blobs(seed=5, shift=0.0), blobs(seed=5, shift=2.5)
    step = moved.unlabelled.x - still.unlabelled.x
    assert torch.equal(moved.labelled.x, still.labelled.x)
    assert torch.allclose(step.norm(dim=1), torch.tensor(2.5), atol=1e-5)
    assert torch.allclose(step, step[:1], atol=1e-5)


def test_the_centres_of_blobs_lie_at_the_separation():
    problem = blobs(count=9000, separation=6.0)
    for label in range(3):
        centre = problem.labelled.x[problem.labelled.labels == label].mean(0)
        assert centre.norm().item() == pytest.approx(6.0, abs=0.15)


def test_moons_that_are_turned_back_are_the_moons_that_were_not_turned():
    plain, turned = moons(rotate=0.0), moons(rotate=90.0)
    x, y = turned.unlabelled.x.T
    assert torch.allclose(torch.stack([y, -x], 1), plain.unlabelled.x, atol=1e-6)


@pytest.mark.parametrize("make", [blobs, moons])
def test_toys_repeat_with_their_seed_and_hide_their_labels(make):
    one, two, other = make(seed=1), make(seed=1), make(seed=2)
    assert torch.equal(one.labelled.x, two.labelled.x)
    assert torch.equal(one.unlabelled.x, two.unlabelled.x)
    assert not torch.equal(one.unlabelled.x, other.unlabelled.x)
    assert (one.unlabelled.labels == -1).all()
    assert one.hidden_labels.shape == (len(one.unlabelled),)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: blobs(classes=1), "blobs: classes must be at least 2, got 1"),
        (lambda: blobs(features=0), "blobs: features must be at least 1, got 0"),
        (lambda: blobs(count=2), "blobs: count must be at least 3, got 2"),
        (lambda: moons(count=1), "moons: count must be at least 2, got 1"),
    ],
)
def test_toys_that_cannot_be_made_are_refused_with_a_sentence(call, sentence):
    with pytest.raises(ConfigError) as caught:
        call()
    assert str(caught.value) == sentence


def test_the_registry_names_every_function_by_its_own_name():
    assert {name: make.__name__ for name, make in DATASETS.items()} == {name: name for name in DATASETS}
    assert list(DATASETS)[:3] == ["digits", "blobs", "moons"]


# MNIST and USPS


def test_digits_are_arrays_of_one_shape_in_0_to_1(tmp_path):
    problem = mnist_usps(digit_packs(tmp_path), 20, 0)
    for side, rows in ((problem.labelled, 20), (problem.unlabelled, 30), (problem.test, 20)):
        assert side.x.shape == (rows, 1, 28, 28)
        assert side.x.dtype == torch.float32
        assert 0 <= side.x.min() < 0.2 < 0.8 < side.x.max() <= 1
    assert problem.test.labels.tolist() == [*range(10), *range(10)]
    assert problem.schema.names == tuple("0123456789")


def test_a_subset_of_digits_is_a_function_of_the_seed_and_keeps_ids_and_labels(tmp_path):
    digit_packs(tmp_path)
    one, again, other = (mnist_usps(tmp_path, 12, 9, seed) for seed in (1, 1, 2))
    assert torch.equal(one.labelled.x, again.labelled.x)
    assert not torch.equal(one.labelled.ids, other.labelled.ids)
    stored = np.load(tmp_path / "mnist.npz", allow_pickle=False)
    assert torch.equal(one.labelled.x[:, 0], torch.from_numpy(stored["train_x"][one.labelled.ids]).float() / 255)
    assert torch.equal(one.labelled.labels, one.labelled.ids % 10)
    assert torch.equal(one.hidden_labels, one.unlabelled.ids % 10)


def test_more_digits_than_there_are_are_refused(tmp_path):
    digit_packs(tmp_path)
    for rows in (31, -1):
        with pytest.raises(ConfigError) as caught:
            mnist_usps(tmp_path, rows)
        assert str(caught.value) == f"mnist_usps: labelled_rows must be in 0..30 (0 = all), got {rows}"


def test_packs_of_digits_that_are_none_are_refused(tmp_path):
    digit_packs(tmp_path)
    path = tmp_path / "usps.npz"
    np.savez(path, train_x=np.zeros((3, 4)))
    assert refusal(lambda: mnist_usps(tmp_path)).startswith(
        f"{path}: not a pack with train_x, train_y, test_x, test_y: "
    )
    x, y = np.zeros((3, 4, 4), np.uint8), np.zeros(2, np.uint8)
    np.savez(path, train_x=x, train_y=y, test_x=x, test_y=y)
    assert refusal(lambda: mnist_usps(tmp_path)) == (
        f"{path}: train_x must be uint8 (N, s, s), train_y N digits, got uint8 (3, 4, 4) and uint8 (2,)"
    )
    np.savez(path, train_x=np.array([{}], dtype=object), train_y=y, test_x=x, test_y=y)
    assert refusal(lambda: mnist_usps(tmp_path)) == (
        f"{path}: array 'train_x': holds Python objects (a pickle); only plain numbers and text are read"
    )
    path.write_bytes(b"no zip")
    assert refusal(lambda: mnist_usps(tmp_path)).startswith(f"{path}: not a pack with ")


def test_absent_packs_are_refused_with_where_they_are_expected(tmp_path):
    assert refusal(lambda: mnist_usps(tmp_path)) == (
        f"mnist_usps: no file mnist.npz in {tmp_path}; set --root or EMBASIS_DATA"
    )


def test_the_real_digits_have_the_published_sizes():
    root = real_data("usps.npz")
    problem = mnist_usps(root)
    assert (len(problem.labelled), len(problem.unlabelled), len(problem.test)) == (2000, 1800, 2007)
    ink = [side.x.mean().item() for side in (problem.labelled, problem.unlabelled)]
    assert ink == pytest.approx([0.13, 0.13], abs=0.02)
    assert len(mnist_usps(root, 10, 0).unlabelled) == 7291
