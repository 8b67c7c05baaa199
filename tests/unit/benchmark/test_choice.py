"""Which methods a comparison runs: names and groups, and what the data and the network allow."""

from __future__ import annotations

import pytest
from torch import nn

from cli_tables import embasis
from embasis.benchmark.choice import Choice, expand_names, leave_out, try_build
from embasis.config import Config, load
from embasis.errors import ConfigError
from embasis.methods import ALIGNMENT, FAMILIES, METHODS
from embasis.types import Sizes

SMALL = {"labelled_rows": 4, "unlabelled_rows": 4, "test_rows": 2}


def settings(dataset: str, network: str | None = None, **tables: object) -> Config:
    data = {"dataset": dataset, **(SMALL if dataset == "scenes" else {"count": 30})}
    return load(None, [], data=data, network={"name": network}, **tables)  # type: ignore[arg-type]


def chosen(config: Config, words: str = "all") -> Choice:
    return leave_out(expand_names(words), words.split(","), config, None)


def test_words_are_methods_families_alignment_or_all() -> None:
    assert expand_names("all") == tuple(METHODS)
    assert expand_names("alignment,cbst,alignment") == (*ALIGNMENT, "cbst")
    assert expand_names("two-heads,mcd") == tuple(FAMILIES["two-heads"])
    assert expand_names("dann, cbst") == ("dann", "cbst")


def test_on_a_linear_network_runs_what_needs_no_features_to_train() -> None:
    choice = chosen(settings("blobs"))
    assert {*FAMILIES["self-training"], "mcc"} <= {*choice.names}
    assert {"dan", "dann", "mcd"} <= {*choice.left_out["need trainable features"]}
    assert "advent" in choice.left_out["for label maps only"]
    assert choice.names == tuple(
        name for name in METHODS if not any(name in names for names in choice.left_out.values())
    )
    assert choice.sentence.startswith("left out: ")
    assert "adaptsegnet (for label maps only)" in choice.sentence or "adaptsegnet, " in choice.sentence
    assert choice.sentence.endswith(
        "; network.name=adapter, images.head=adapter or images.depth=partial makes features trainable"
    )


def test_on_a_network_with_features_all_methods_of_rows_run() -> None:
    choice = chosen(settings("blobs", "adapter"))
    assert {"dan", "dann", "mcd"} <= {*choice.names}
    assert {*choice.left_out} <= {"for label maps only", "for pictures only"}


def test_on_label_maps_run_methods_of_maps() -> None:
    choice = chosen(settings("scenes"))
    assert {"advent", "mcd", "em_basis"} <= {*choice.names}
    assert {"dan", "dann", "mcc"} <= {*choice.left_out["for rows only"]}


def test_a_generator_is_left_out_where_it_could_not_draw_the_inputs() -> None:
    gta = METHODS["gta"](3).align
    assert gta is not None
    network = nn.Linear(4, 3)
    assert try_build(gta, network, Sizes((3, 1, 1), 4, 3)) == "not for inputs of this shape"
    assert try_build(gta, network, Sizes((1, 8, 8), 4, 3)) == ""
    assert "gta" in chosen(settings("digits")).names


def test_a_game_is_left_out_where_the_optimiser_searches_lines() -> None:
    choice = chosen(settings("blobs", "mlp", plan={"optimiser": "lbfgs", "batch_size": 0}))
    assert "dann" in choice.left_out["need adam or sgd"]
    assert "dan" in choice.names


def test_a_method_that_is_named_is_never_left_out() -> None:
    assert chosen(settings("blobs"), "dan,cbst") == Choice(("dan", "cbst"))
    assert "dan" in chosen(settings("blobs"), "all,dan").names


def test_a_group_of_which_nothing_can_run_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^none of these methods can run here; left out: "):
        chosen(settings("blobs"), "two-heads")


def test_compare_says_in_one_line_what_is_left_out() -> None:
    words = ("--methods", "discrepancy", "--seeds", 1, "count=30", "rounds=1")
    result = embasis("compare", "blobs", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("left out: dan, ")
    assert "(need trainable features)" in result.stdout
    assert "\nmcc " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_row_says_which_aligner_was_set_beside_its_method() -> None:
    words = ("--methods", "source_only,dann", "--backbone", "adapter", "align.name=mcc", "count=30", "plan.rounds=1")
    result = embasis("compare", "blobs", *words, "plan.source_epochs=1", "plan.epochs=1", "--seeds", 1)
    assert result.exit_code == 0, result.output
    assert "\nsource_only with mcc " in result.stdout
    assert "\ndann " in result.stdout
