from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embasis.data.class_labels import label_names, sort_names
from embasis.data.problem import check_numbers, from_arrays, to_float32
from embasis.errors import EmbasisWarning, InputDataError

X = np.arange(32, dtype=np.float64).reshape(4, 8)
Y = ["cat", "dog", "cat", "eel"]


def refusal(*args: object, **kwargs: object) -> str:
    with pytest.raises(InputDataError) as caught:
        from_arrays(*args, **kwargs)  # type: ignore[arg-type]
    return str(caught.value)


def test_labels_become_numbers_of_sorted_names():
    problem = from_arrays(X, ["dog", "cat", "dog", "eel"], X + 1)
    assert problem.schema.names == ("cat", "dog", "eel")
    assert problem.labelled.labels.tolist() == [1, 0, 1, 2]
    assert problem.unlabelled.labels.tolist() == [-1] * 4
    assert problem.hidden_labels is None
    assert problem.same_domain is False


def test_names_fix_the_order_and_may_hold_a_class_without_rows():
    problem = from_arrays(X, Y, X, names=["yak", "eel", "dog", "cat"], hidden_labels=["yak", "cat", "cat", "dog"])
    assert problem.labelled.labels.tolist() == [3, 2, 3, 1]
    assert problem.hidden_labels.tolist() == [0, 3, 3, 2]


def test_integer_classes_are_in_the_order_of_their_values():
    assert from_arrays(X, [10, 9, 2, 2], X).schema.names == ("2", "9", "10")
    assert sort_names(["10", "9", "x"]) == ["10", "9", "x"]


@pytest.mark.parametrize(
    "y",
    [
        np.array([3, 5, 3, 5]),
        np.array([3.0, 5.0, 3.0, 5.0]),
        torch.tensor([3, 5, 3, 5]),
        np.array([b"3", b"5", b"3", b"5"]),
        np.array([["3"], ["5"], ["3"], ["5"]]),
        ["3", 5, 3.0, "5.0"],
    ],
)
def test_integers_of_every_kind_are_the_same_classes(y):
    problem = from_arrays(X, y, X)
    assert problem.schema.names == ("3", "5")
    assert problem.labelled.labels.tolist() == [0, 1, 0, 1]


def test_unknown_hidden_labels_stay_minus_one():
    problem = from_arrays(X, Y, np.ones((6, 8)), hidden_labels=["cat", "", None, float("nan"), -1, "eel"])
    assert problem.hidden_labels.tolist() == [0, -1, -1, -1, -1, 2]
    assert from_arrays(X, Y, X, hidden_labels=[-1, -1, -1, -1]).hidden_labels is None


def test_a_test_set_takes_the_numbers_of_the_labelled_classes():
    problem = from_arrays(X, Y, X, test=(X[:2], ["eel", "cat"]))
    assert problem.test.labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "longdouble", "int8", "uint8", "int64", "bool", ">f8"]
)
def test_numbers_of_every_width_become_float32(dtype):
    x = (X > 9).astype(dtype)
    problem = from_arrays(x, Y, x)
    assert problem.labelled.x.dtype == problem.unlabelled.x.dtype == torch.float32
    assert np.array_equal(problem.labelled.x.numpy(), x.astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_tensors_of_every_width_become_float32(dtype):
    x = torch.arange(8).reshape(4, 2).to(dtype).requires_grad_(dtype.is_floating_point)
    problem = from_arrays(x, Y, x)
    assert torch.equal(problem.labelled.x, torch.arange(8.0).reshape(4, 2))
    assert not problem.labelled.x.requires_grad


def test_the_problem_does_not_share_memory_with_the_callers_arrays():
    x = X.astype(np.float32)
    problem = from_arrays(x, Y, x)
    x[:] = -1
    assert problem.labelled.x.min() == 0


def test_images_keep_their_shape():
    assert from_arrays(np.zeros((4, 1, 8, 8)), Y, np.zeros((2, 1, 8, 8))).labelled.x.shape == (4, 1, 8, 8)


@given(hnp.arrays(st.sampled_from([np.float16, np.float32, np.float64]), (5, 3), elements=st.floats(width=16)))
def test_an_array_is_taken_whole_or_refused_with_the_number_of_bad_values(x):
    bad = ~np.isfinite(x)
    if bad.any():
        with pytest.raises(InputDataError) as caught:
            check_numbers(x, "x")
        nan, inf = int(np.isnan(x).sum()), int(np.isinf(x).sum())
        assert (f"{nan} NaN" in str(caught.value)) == (nan > 0)
        assert (f"{inf} inf" in str(caught.value)) == (inf > 0)
        assert f"first at row {np.argwhere(bad)[0][0]}, column {np.argwhere(bad)[0][1]}" in str(caught.value)
    else:
        assert np.array_equal(to_float32(check_numbers(x, "x")).numpy(), x.astype(np.float32))


@given(st.lists(st.one_of(st.text(), st.integers(), st.none(), st.booleans()), max_size=20))
def test_names_of_labels_are_the_same_when_named_again(labels):
    names = label_names(labels, "y")
    assert len(names) == len(labels)
    assert label_names(names, "y") == names


def test_values_that_are_not_finite_are_counted_and_located():
    x = X.copy()
    x[1, 5], x[3, 5], x[3, 6] = np.nan, np.nan, -np.inf
    assert refusal(x, Y, X) == (
        "labelled: values must be finite, got 2 NaN and 1 inf in 2 of 4 rows and 2 of 8 columns; "
        "first at row 1, column 5"
    )
    assert refusal(X, Y, x[:2]) == (
        "unlabelled: values must be finite, got 1 NaN in 1 of 2 rows and 1 of 8 columns; first at row 1, column 5"
    )


def test_features_times_1e30_fit_and_times_1e39_do_not():
    assert torch.isfinite(from_arrays(X * 1e30, Y, X).labelled.x).all()
    x = np.ones((4, 8))
    x[2, 3] = -1e39
    assert refusal(x, Y, X) == (
        "labelled: values must fit in float32 (up to 3.4e+38), 1 do not; first at row 2, column 3: -1e+39"
    )


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (X.astype(object), "labelled: values must be real numbers, got dtype object"),
        (X.astype(complex), "labelled: values must be real numbers, got dtype complex128"),
        (X.astype(str), "labelled: values must be real numbers, got dtype <U32"),
        (torch.ones(4, 8, dtype=torch.complex64), "labelled: values must be real numbers, got dtype complex64"),
        (torch.ones(4, 8).to_sparse(), "labelled: a dense tensor is needed, got layout torch.sparse_coo"),
        (X[:, 0], "labelled: 2 or more dimensions (rows, features) are needed, got shape (4,)"),
        (5.0, "labelled: 2 or more dimensions (rows, features) are needed, got shape ()"),
        (X[:, :0], "labelled: at least one feature is needed, got shape (4, 0)"),
        (np.ma.masked_less(X, 3), "labelled: masked values must be filled or their rows left out"),
        (X[:3], "labelled: 3 rows but 4 labels"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused_with_a_sentence(x, sentence):
    assert refusal(x, Y, X) == sentence


def test_ragged_rows_are_refused():
    assert refusal([[1, 2], [3]], Y, X).startswith("labelled: rows must have one length: ")


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (["cat"] * 4, "labelled: at least 2 classes are needed, got 1 class: 'cat'"),
        (["cat", "", None, "dog"], "labelled: 2 of 4 rows have no label (empty, NaN or -1)"),
        ([-1] * 4, "labelled: 4 of 4 rows have no label (empty, NaN or -1)"),
        ([0.5, 1, 2, 3], "labelled: labels must be classes, got the continuous value 0.5"),
        ([float("inf"), 1, 2, 3], "labelled: labels must be classes, got the continuous value inf"),
        ([1j, 1, 2, 3], "labelled: labels must be text or integers, got complex"),
        (np.zeros((4, 2)), "labelled: labels must be one column, got shape (4, 2)"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_with_a_sentence(y, sentence):
    assert refusal(X, y, X) == sentence


def test_sides_of_different_shape_are_refused_with_both_shapes():
    assert refusal(X, Y, X[:, :7]) == "unlabelled: 7 features, labelled has 8"
    assert refusal(X, Y, X, test=(X[:, :5], Y)) == "test: 5 features, labelled has 8"
    assert refusal(X.reshape(4, 2, 4), Y, X) == "unlabelled: rows of shape (8,), labelled has (2, 4)"


def test_classes_that_the_labelled_side_lacks_are_refused_with_both_differences():
    assert refusal(X, ["a", "b", "c", "a"], X, hidden_labels=["b", "c", "d", "d"]) == (
        "unlabelled: classes that the labelled side lacks: 'd'; classes only on the labelled side: 'a'"
    )
    assert refusal(X[:2], ["b", "c"], X, hidden_labels=["b", "c", "d", "b"]) == (
        "unlabelled: classes that the labelled side lacks: 'd'"
    )
    assert (
        refusal(X, Y, X, test=(X, ["cat", "dog", "eel", "yak"])) == "test: classes that the labelled side lacks: 'yak'"
    )
    assert refusal(X, Y, X, names=["cat", "dog"]) == "labelled: classes that are not in names: 'eel'"


def test_a_long_list_of_classes_is_cut_short():
    hidden = [f"c{number:02}" for number in range(12)]
    assert refusal(X[:2], ["c00", "c01"], np.ones((12, 8)), hidden_labels=hidden[:2] + hidden[2:]) == (
        "unlabelled: classes that the labelled side lacks: "
        "'c02', 'c03', 'c04', 'c05', 'c06', 'c07', 'c08', 'c09', 'c10', 'c11'"
    )
    assert refusal(X[:2], ["a", "b"], np.ones((12, 8)), hidden_labels=hidden).endswith(
        "'c09' and 2 more; classes only on the labelled side: 'a', 'b'"
    )


def test_wrong_numbers_of_rows_are_refused():
    assert refusal(X[:0], [], X) == "labelled: at least one labelled row is needed, got none"
    assert refusal(X, Y, X, hidden_labels=["cat"]) == "hidden: 1 labels, unlabelled has 4 rows"
    assert refusal(X, Y, X, test=(X, ["cat", "dog", "eel", ""])) == "test: 1 of 4 rows have no label (empty, NaN or -1)"


def test_no_unlabelled_rows_warn_that_training_is_supervised_only():
    with pytest.warns(EmbasisWarning, match=r"^no unlabelled rows: training is supervised only$") as caught:
        problem = from_arrays(X, Y, X[:0])
    assert len(problem.unlabelled) == 0
    assert caught[0].filename == __file__
