"""Settings: from files and words to a run with every default written down, and a whole sentence for each mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embasis import config
from embasis.benchmark.compare import run_comparison
from embasis.config import LEGACY_PLAN, Config, load
from embasis.errors import ConfigError, IncompatibleError
from embasis.learners import LEARNERS
from embasis.methods import ALIGNMENT, METHODS, SELF_TRAINING
from embasis.methods.em_basis import ClassMeans, EMBasisLabeller, Fusion, LinearHead, Mixture, StageOne
from embasis.methods.losses import MinimumEntropy, PseudoLabelLoss
from embasis.methods.parts import LEGACY_SETTINGS, MOVED_SETTINGS, part_of
from embasis.methods.selectors import ClassBalanced, ConfidenceThreshold
from embasis.networks import BACKBONES, PRETRAINED, SEGMENTERS
from embasis.runs.parts import PLANS, build
from embasis.types import Plan
from map_runs import little_streets
from training_runs import little_digits, toy

TOP_KEYS = "align, data, images, maps, method, network, plan, save_seconds, seed, standardise"
PLAN_KEYS = (
    "accumulate_steps, augment, batch_size, collapse_share, device, epochs, harm_limit, holdout, keep_round, lr, "
    "lr_power, max_sites, momentum, optimiser, precision, rounds, schedule, source_epochs, source_lr, sum, "
    "weight_decay"
)
IMAGE_KEYS = "augment, cache, depth, head, stages, workers"
MAP_KEYS = "blur, colour, crop_height, crop_width, flip, least_scale, most_scale, rare, size, window, workers"
DATA_KEYS = (
    "allow_empty_class, allow_missing_class, budget, classes, corrections, dataset, drop, follow_links, "
    "forbid_leakage, id, label, labelled, test, unlabelled"
)


def says(act: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        act()
    return str(caught.value)


def written(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- files and words


def test_words_win_over_tables_and_tables_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'seed = 4\n[method]\nname = "cbst"\nkeep_first = 0.1\nkeep_step = 0.2\nkeep_max = 0.9\n')
    found = load(path, ["method.keep_first=0.3"], method={"keep_first": 0.2, "keep_step": 0.0, "keep_max": None})
    assert found.seed == 4
    assert found.method == {"name": "cbst", "keep_first": 0.3, "keep_step": 0.0, "keep_max": 0.9}


def test_a_bare_key_goes_to_the_one_table_that_knows_it() -> None:
    words = ["rounds=3", "keep_first=0.1", "name=1"][:2]
    assert load(None, words) == Config(plan={"rounds": 3}, method={"keep_first": 0.1})
    assert load(None, ["plan.rounds=3", "method.keep_first=0.1"]) == load(None, words)


def test_a_bare_key_is_looked_up_in_the_method_and_the_network_that_are_asked_for() -> None:
    found = load(None, ["threshold=0.5", "hidden=9"], method={"name": "pseudo_label"}, network={"name": "mlp"})
    assert (found.method["threshold"], found.network["hidden"]) == (0.5, 9)
    assert says(lambda: load(None, ["hidden=9"])).startswith("unknown key 'hidden'; known keys: ")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("keep_first=0.5", 0.5), ("keep_first=1", 1), ("keep_first=1e-3", 1e-3),
        ("keep_first=.5", 0.5), ("keep_first=-.5", -0.5),
        ("recalibration=draw", "draw"), ('recalibration="draw"', "draw"),
        ("recalibration= draw ", "draw"), ("recalibration=a=b", "a=b"),
        ("sharpness=true", True), ("recalibration=", ""), ("recalibration=x.y", "x.y"),
    ],
)  # fmt: skip
def test_a_value_is_read_as_toml_and_what_is_none_is_a_word(word: str, value: object) -> None:
    found = load(None, [word]).method[word.partition("=")[0]]
    assert found == value
    assert type(found) is type(value)


def test_the_config_of_a_run_folder_can_be_read_again(tmp_path: Path) -> None:
    built = build(toy(), load(None, ["keep_first=0.3", "seed=5"]))
    path = written(tmp_path, json.dumps(built.resolved), "config.json")
    assert build(toy(), load(path)).resolved == built.resolved


# --- mistakes in files and words


def test_an_unknown_key_is_answered_with_all_known_keys() -> None:
    assert says(lambda: load(None, ["round=3"], method={"name": "pseudo_label"}, network={"name": "mlp"})) == (
        "unknown key 'round'; did you mean plan.rounds? known keys: save_seconds, seed, standardise; "
        f"data: {DATA_KEYS}; method: name, threshold, unlabelled_weight; align: ends, name; "
        "network: dropout, hidden, layers, name; "
        f"plan: {PLAN_KEYS}; images: {IMAGE_KEYS}; maps: {MAP_KEYS}"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["name=cbst"], "'name' is ambiguous: write method.name or align.name or network.name"),
        (["rounds"], "settings are written key=value, got 'rounds'"),
        (["=3"], "settings are written key=value, got '=3'"),
        (["plan.rounds.x=3"], "a key has at most one dot, got 'plan.rounds.x'"),
        (
            ["plans.rounds=3"],
            "unknown table 'plans'; did you mean plan? known: align, data, images, maps, method, network, plan",
        ),
        (["save_seconds=-1"], "save_seconds must be at least 0 and finite, got -1.0"),
        (["save_seconds=inf"], "save_seconds must be at least 0 and finite, got inf"),
        (["seed=abc"], f"config: Expected `int`, got `str` - at `$.seed`; known keys: {TOP_KEYS}"),
        (["standardise=3"], f"config: Expected `str`, got `int` - at `$.standardise`; known keys: {TOP_KEYS}"),
    ],
)
def test_a_wrong_word_is_refused_in_one_sentence(words: list[str], sentence: str) -> None:
    assert says(lambda: load(None, words)) == sentence


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("sede = 1", "run.toml", f"config: Object contains unknown field `sede`; known keys: {TOP_KEYS}"),
        ('method = "cbst"', "run.toml", "config: method must be a table of settings, got 'cbst'"),
        ("seed = 1\nplan = [", "run.toml", "config {path}: Invalid value (at end of document)"),
        ("seed = 1\nseed = 2\n", "run.toml", "config {path}: Cannot overwrite a value (at line 2, column 9)"),
        ("{", "config.json", "config {path}: Input data was truncated"),
        ("[1, 2]", "config.json", "config {path}: tables of settings are expected, got a list or a value"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, text: str, name: str, sentence: str) -> None:
    path = written(tmp_path, text, name)
    assert says(lambda: load(path, ["rounds=3"])) == sentence.replace("{path}", str(path))


def test_a_file_that_is_not_there_is_named() -> None:
    assert says(lambda: load("no/such.toml")) == "cannot read config no/such.toml: No such file or directory"


# --- names and types of settings


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"method": {"name": "em_bases"}},
            f"unknown method 'em_bases'; did you mean em_basis? known: {', '.join(sorted(METHODS))}",
        ),
        (
            {"network": {"name": "vgg"}},
            f"unknown network 'vgg'; known: {', '.join(sorted({**BACKBONES, **PRETRAINED, **SEGMENTERS, **LEARNERS}))}",
        ),
        (
            {"method": {"name": "pseudo_label", "keep_first": 0.2}},
            "unknown method setting 'keep_first'; known: threshold, unlabelled_weight",
        ),
        ({"method": {"name": "source_only", "keep_first": 0.2}}, "unknown method setting 'keep_first'; known: none"),
        ({"network": {"name": "mlp", "width": 3}}, "unknown network setting 'width'; known: dropout, hidden, layers"),
        ({"plan": {"round": 3}}, f"unknown plan setting 'round'; did you mean rounds? known: {PLAN_KEYS}"),
        ({"plan": {"seed": 3}}, f"unknown plan setting 'seed'; known: {PLAN_KEYS}"),
        ({"plan": {"rounds": 3.5}}, "plan.rounds must be a whole number, got 3.5"),
        ({"plan": {"rounds": True}}, "plan.rounds must be a whole number, got True"),
        ({"plan": {"lr": "high"}}, "plan.lr must be a number, got 'high'"),
        ({"plan": {"lr": float("inf")}}, "plan.lr must be finite, got inf"),
        ({"plan": {"optimiser": 3}}, "plan.optimiser must be a word, got 3"),
        ({"method": {"keep_first": True}}, "method.keep_first must be a number, got True"),
        ({"method": {"recalibration": [1]}}, "method.recalibration must be a word, got [1]"),
        ({"network": {"name": "mlp", "hidden": "9"}}, "network.hidden must be a whole number, got '9'"),
        ({"top": {"standardise": "both"}}, "standardise must be one of domain, joint, none, got 'both'"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(tables: dict[str, Any], sentence: str) -> None:
    assert says(lambda: build(toy(), load(**tables))) == sentence


def test_true_or_false_is_asked_for_where_a_setting_is_one() -> None:
    def recipe(classes: int, *, flag: bool = False) -> None:
        """A method of one switch."""

    assert says(lambda: config.bind_settings("method", recipe, {"flag": 1}, ["flag"])) == (
        "method.flag must be true or false, got 1"
    )


MOVED = (
    "method.joint is no setting any more, it is the part labeller.mixture.guided (in Python: "
    "embasis.methods.parts.replace_parts(method, {'labeller.mixture.guided': …})); em_basis_paper has the paper's parts"
)


@pytest.mark.parametrize("word", ["joint=false", "method.joint=false"])
def test_a_setting_that_has_become_a_part_is_refused_with_where_it_went(word: str) -> None:
    assert says(lambda: build(toy(), load(None, [word]))) == MOVED
    assert says(lambda: [*run_comparison("blobs", ["em_basis"], [0], load(None, [word]))]) == MOVED


@pytest.mark.parametrize("word", ["keep=0.3", "method.keep=0.3"])
def test_a_setting_that_has_another_name_is_refused_with_the_new_one(word: str) -> None:
    assert says(lambda: build(toy(), load(None, [word]))) == "method.keep is called method.keep_first now"


@pytest.mark.parametrize(("old", "new"), LEGACY_PLAN.items())
def test_a_setting_of_the_plan_that_has_another_name_is_refused_with_the_new_one(old: str, new: str) -> None:
    for word in (f"{old}=1", f"plan.{old}=1"):
        assert says(lambda word=word: build(toy(), load(None, [word]))) == f"plan.{old} is called plan.{new} now"
    assert new in Plan.__dataclass_fields__


def test_an_old_name_of_another_table_is_an_unknown_setting() -> None:
    assert says(lambda: build(toy(), load(plan={"keep": 1}))).startswith("unknown plan setting 'keep'; known: ")
    assert says(lambda: build(toy(), load(method={"batch": 1}))).startswith("unknown method setting 'batch'; known: ")


def test_augment_is_a_setting_of_two_tables_and_must_be_written_in_full() -> None:
    assert says(lambda: load(None, ["augment=1"])) == "'augment' is ambiguous: write plan.augment or images.augment"


def test_the_plan_of_a_run_of_version_0_1_0_is_the_same_plan(tmp_path: Path) -> None:
    old = {"batch": 8, "accumulate": 2, "decay": 0.9, "reservoir": 2048, "choose": "entropy", "warp": 0.0, "rounds": 3}
    built = build(toy(), load(written(tmp_path, json.dumps({"network": {"name": "mlp"}, "plan": old}), "config.json")))
    plan = built.plan
    assert (plan.batch_size, plan.accumulate_steps, plan.lr_power, plan.max_sites) == (8, 2, 0.9, 2048)
    assert (plan.keep_round, plan.augment, plan.rounds) == ("entropy", 0.0, 3)


def test_every_old_setting_of_the_method_is_a_setting_or_a_part_of_today() -> None:
    default = METHODS["em_basis"](3)
    for name in LEGACY_SETTINGS.values():
        assert name in config.setting_names(METHODS["em_basis"])
    for path, _ in MOVED_SETTINGS.values():
        assert path.startswith("labeller.start.") or part_of(default, path) is not None, path


@pytest.mark.parametrize("name", METHODS)
def test_the_config_that_a_run_writes_down_is_read_back_as_it_is(name: str) -> None:
    method = {"name": name, **config.bind_entry("method", name, {})}
    assert config.upgrade_config({"method": method})["method"] == method


def test_a_small_cnn_of_a_release_without_norm_stays_without() -> None:
    old = {"name": "small_cnn", "width": 16, "features": 64, "dropout": 0.2}
    assert config.upgrade_config({"network": old})["network"] == {**old, "norm": False}
    new = {**old, "norm": True}
    assert config.upgrade_config({"network": new})["network"] == new
    short = {"name": "small_cnn"}  # by hand: no run folder leaves settings out
    assert config.upgrade_config({"network": short})["network"] == short


OLD = {
    "name": "em_basis", "per_class": 2, "keep": 0.3, "step": 0.05, "cap": 0.5, "weight": 1.0, "iterations": 10,
    "start": "stage1", "carry": True, "affinity": 0.5, "joint": False, "evidence": 0.0, "head": "linear", "sigma": 0.3,
    "draws": 8, "uncertainty": "between_sum", "labels": "draw", "temper": True, "centring": "domain",
    "recalibration": "witness",
}  # fmt: skip


def test_the_config_of_a_run_of_version_0_1_0_makes_the_same_method(tmp_path: Path) -> None:
    built = build(toy(), load(written(tmp_path, json.dumps({"method": OLD}), "config.json")))
    assert built.resolved["method"]["components_per_class"] == 2
    labeller = built.method.labeller
    assert labeller == EMBasisLabeller(
        3,
        StageOne(6, affinity=0.5),
        Mixture(guided=False),
        LinearHead(sigma=0.3, draws=8),
        Fusion(weight=0.0),
        rank_by="between",
    )
    assert built.method.selector == ClassBalanced(0.3, 0.05, 0.5, labels="draw")
    assert built.method.recalibration == "reference"
    again = load(written(tmp_path, json.dumps(built.resolved), "config.json"))
    assert build(toy(), again).resolved == built.resolved


def test_an_old_ranking_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"method": {**OLD, "uncertainty": "literal"}}), "config.json")
    with pytest.raises(IncompatibleError) as caught:
        load(path)
    assert str(caught.value) == (
        "the run ranks its labels by uncertainty = 'literal', which this version does not have; use version 0.1.0"
    )


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"labeller.fusions": None},
            "the method has no part 'labeller.fusions': EMBasisLabeller has classes, fusion, head, mixture, "
            "neighbours, rank_by, start",
        ),
        ({"labeller.start": "Random"}, "labeller.start must be one of ClassMeans, StageOne, WarmStart, got 'Random'"),
        (
            {"labeller.mixture.iterations": "ten"},
            "labeller.mixture.iterations: Expected `int`, got `str`, got 'ten'",
        ),
        ({"labeller.mixture": 3}, "labeller.mixture is a part, which has fields of its own"),
        ({"labeller.mixture.sharpness": -1}, "sharpness must be at least 0, got -1.0"),
    ],
)
def test_a_wrong_change_of_a_part_is_refused_in_one_sentence(parts: dict[str, Any], sentence: str) -> None:
    assert says(lambda: build(toy(), Config(parts=parts))) == sentence


def test_parts_are_not_for_files_of_settings(tmp_path: Path) -> None:
    path = written(tmp_path, '[parts]\n"labeller.rank_by" = "between"\n')
    assert says(lambda: load(path)) == f"config {path}: unknown key 'parts'; known keys: {TOP_KEYS}"


# --- the resolved config


TAKES = {name: align.takes for name, recipe in ALIGNMENT.items() if (align := recipe(3).align) is not None}
ON_ROWS = [*SELF_TRAINING, *(name for name, kinds in TAKES.items() if "rows" in kinds)]


@pytest.mark.parametrize("method", ON_ROWS)
def test_a_resolved_config_has_every_default(method: str) -> None:
    network = "mlp" if method in ALIGNMENT else "linear"
    resolved = build(toy(), load(method={"name": method}, network={"name": network})).resolved
    assert resolved.keys() == set(TOP_KEYS.split(", ")) - {"align"}
    assert resolved["method"].keys() == {"name", *config.setting_names(METHODS[method])}
    assert resolved["plan"].keys() == set(PLAN_KEYS.split(", "))
    assert resolved["network"]["name"] == network
    assert (resolved["standardise"], resolved["seed"]) == ("domain", 0)


@pytest.mark.parametrize("method", list(TAKES))
def test_an_aligner_beside_a_method_is_resolved_with_every_default(method: str) -> None:
    problem = toy() if "rows" in TAKES[method] else little_streets()
    network = "mlp" if problem is toy() else "small_fcn"
    resolved = build(problem, load(align={"name": method}, network={"name": network})).resolved
    assert resolved["align"].keys() == {"name", "ends", *config.setting_names(ALIGNMENT[method])}
    assert resolved["method"]["name"] == "em_basis"


@pytest.mark.parametrize("network", list(BACKBONES))
def test_each_network_brings_its_plan_and_the_users_own_keys_win(network: str) -> None:
    problem = {"small_cnn": little_digits, "small_fcn": little_streets}.get(network, toy)()
    resolved = build(problem, load(network={"name": network}, plan={"rounds": 9})).resolved
    assert resolved["plan"].items() >= {**PLANS[network], "rounds": 9}.items()


def test_images_get_a_convolutional_network_and_keep_their_values() -> None:
    built = build(little_digits(), load())
    assert (built.resolved["network"]["name"], built.resolved["standardise"]) == ("small_cnn", "none")


def test_equal_settings_are_written_equally() -> None:
    one, two = (build(toy(), load(plan={"lr": value})).resolved for value in (1, 1.0))
    assert json.dumps(one) == json.dumps(two)


# --- rules of the parts


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rounds": -1}, "plan.rounds must be at least 0, got -1"),
        ({"augment": 4.0}, "plan.augment must be in [0, 3], got 4.0"),
        ({"source_epochs": -1}, "plan.source_epochs must be at least 0, got -1"),
        ({"epochs": -2}, "plan.epochs must be at least 0, got -2"),
        ({"batch_size": -1}, "plan.batch_size must be at least 0, got -1"),
        ({"lr": 0.0}, "plan.lr must be positive, got 0.0"),
        ({"source_lr": float("nan")}, "plan.source_lr must be positive, got nan"),
        ({"optimiser": "adamw"}, "plan.optimiser must be one of adam, sgd, lbfgs, got 'adamw'"),
        ({"momentum": 1.0}, "plan.momentum must be in [0, 1), got 1.0"),
        ({"weight_decay": -0.1}, "plan.weight_decay must be at least 0, got -0.1"),
        ({"collapse_share": 0.0}, "plan.collapse_share must be in (0, 1], got 0.0"),
        ({"holdout": 0.7}, "plan.holdout must be in [0, 0.5], got 0.7"),
        (
            {"keep_round": "validation"},
            "plan.keep_round = validation needs plan.holdout > 0 (labelled rows to check by), got 0.0",
        ),
        ({"lr_power": -0.5}, "plan.lr_power must be at least 0, got -0.5"),
        ({"max_sites": -1}, "plan.max_sites must be at least 0, got -1"),
        ({"max_sites": 1023}, "plan.max_sites must be 0 (no limit) or at least 1024, got 1023"),
        (
            {"optimiser": "lbfgs", "batch_size": 8},
            "plan.optimiser = lbfgs needs plan.batch_size = 0 (all rows in one batch), got 8",
        ),
    ],
)
def test_a_plan_out_of_its_range_is_refused_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    assert says(lambda: Plan(**settings)) == sentence


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ConfidenceThreshold(0.0), "threshold must be in (0, 1], got 0.0"),
        (lambda: ClassBalanced(keep_first=1.5), "keep_first must be in (0, 1], got 1.5"),
        (lambda: ClassBalanced(keep_step=-0.1), "keep_step must be at least 0, got -0.1"),
        (
            lambda: ClassBalanced(keep_first=0.4, keep_max=0.3),
            "keep_max must be 0 (what is expected to be right) or in [keep_first, 1] = [0.4, 1], got 0.3",
        ),
        (lambda: ClassBalanced(labels="hard"), "labels must be one of mode, draw, soft, entropy, l2, got 'hard'"),
        (lambda: ClassBalanced(weights="var"), "weights must be one of equal, inverse_variance, got 'var'"),
        (lambda: ClassBalanced(selects="one"), "selects must be one of class, all, got 'one'"),
        (lambda: ClassBalanced(temperature=0.0), "temperature must be positive, got 0.0"),
        (lambda: ClassBalanced(alpha=0.0), "alpha must be positive, got 0.0"),
        (lambda: ClassBalanced(floor=0.0), "floor must be positive, got 0.0"),
        (lambda: PseudoLabelLoss(unlabelled_weight=-1.0), "unlabelled_weight must be at least 0, got -1.0"),
        (lambda: PseudoLabelLoss(alpha=-1.0), "alpha must be at least 0, got -1.0"),
        (lambda: PseudoLabelLoss(regulariser="l1"), "regulariser must be one of none, kld, entropy, l2, got 'l1'"),
        (lambda: MinimumEntropy(unlabelled_weight=-1.0), "unlabelled_weight must be at least 0, got -1.0"),
        (lambda: ClassMeans(-1), "components_per_class must be at least 0, got -1"),
        (lambda: StageOne(-1), "components must be at least 0, got -1"),
        (lambda: StageOne(affinity=-0.5), "affinity must be at least 0, got -0.5"),
        (lambda: Mixture(iterations=-1), "iterations must be at least 0, got -1"),
        (lambda: Mixture(sharpness=-1.0), "sharpness must be at least 0, got -1.0"),
        (lambda: Mixture(perplexity=0.5), "perplexity must be over 1, or 0 for one class's components, got 0.5"),
        (lambda: Mixture(kernel="rbf"), "kernel must be one of dot, gaussian, got 'rbf'"),
        (lambda: Mixture(centring="all"), "centring must be one of domain, joint, none, got 'all'"),
        (lambda: LinearHead(draws=-1), "draws must be at least 0, got -1"),
        (lambda: LinearHead(sigma=float("nan")), "sigma must be at least 0, got nan"),
        (lambda: LinearHead(penalty=-1.0), "penalty must be at least 0, got -1.0"),
        (lambda: Fusion(weight=-1.0), "weight must be at least 0, got -1.0"),
        (lambda: Fusion(class_priors="even"), "class_priors must be one of auto, labelled, estimated, got 'even'"),
        (lambda: Fusion(prior_strength=-1.0), "prior_strength must be at least 0, got -1.0"),
        (lambda: METHODS["em_basis"](2, unlabelled_weight=-1.0), "unlabelled_weight must be at least 0, got -1.0"),
        (
            lambda: METHODS["em_basis"](2, recalibration="magic"),
            "recalibration must be one of reference, weighted, none, got 'magic'",
        ),
        (lambda: EMBasisLabeller(2, rank_by="sum"), "rank_by must be one of gini, between, got 'sum'"),
    ],
)
def test_a_part_out_of_its_range_is_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    assert says(make) == sentence


@pytest.mark.parametrize(
    ("table", "name", "meant"),
    [
        ("method", "cbts", "cbst"), ("method", "DANN", "dann"), ("align", "fixmach", "fixmatch"),
        ("network", "small-cnn", "small_cnn"),
        ("data", "office-31", "office31"), ("data", "imagenet", ""), ("method", "help", ""),
    ],
)  # fmt: skip
def test_a_name_that_is_nearly_one_is_answered_with_it(table: str, name: str, meant: str) -> None:
    assert (
        says(lambda: config.find_entry(table, name))
        .partition(";")[2]
        .startswith(f" did you mean {meant}? known: " if meant else " known: ")
    )
