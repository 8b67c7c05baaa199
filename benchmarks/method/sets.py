"""The data sets of the study. A set whose network draws nothing needs one seed: a second one would repeat it.

`peers`: whether methods for vectors run, too (on pixels where the set has no vectors). `wide`: with how many seeds
variants and the factorial run, so that a study takes hours and not days on two cores; a set with 0 has the comparison
methods and the default alone, unless --only names more. `<set>_shares` is the set with other class shares on its
target side (shares.py); what is thinned is drawn by the seed, so it has as many seeds as are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embasis.data import DATASETS
from embasis.data.datasets.domain_sets import PAIRS, find_data_folder
from embasis.errors import ConfigError, InputDataError, join_names, require
from embasis.inputs.load import load_dataset

RESNET = "resnet50_msra_fp16.safetensors"
SMALL_WORDS = ("network.name=small_cnn", "network.width=8")
SPEECH_WORDS = ("network.name=linear", "standardise=domain")
RESNET_WORDS = ("network.name=timm:resnet50", f"network.weights=ROOT/{RESNET}", "network.stride_first=true")


@dataclass(frozen=True)
class StudySet:
    """A data set with the settings that it is studied with."""

    name: str
    dataset: str
    words: tuple[str, ...] = ()
    """Settings for all candidates; ROOT stands for the folder of data packs."""
    preset: str | None = None
    draws: bool = False
    """Whether the seed changes anything: the data, or the first weights of the network."""
    peers: bool = True
    wide: int = 5
    """Most seeds of variants and of the factorial."""
    asked: bool = False
    """Whether it runs only when it is named."""
    all_epochs: int = 0
    """Passes over the labelled side in all rounds together; 0 = features are fixed, and nothing can be aligned."""
    share: float = 1.0
    """Which part of their unlabelled rows half of the classes keep; 1 = all."""

    @property
    def data_mark(self) -> str:
        """What says which data they are, in the mark of a row."""
        return self.dataset if self.share == 1 else f"{self.dataset}, {self.share} of half of the classes"

    def settings(self, root: str | None) -> tuple[str, ...]:
        """The settings with the folder in them."""
        return tuple(word.replace("ROOT", str(find_data_folder(root))) for word in self.words)

    def seeds(self, count: int, wide: bool = False) -> range:
        """The seeds that are worth running, of all methods or (`wide`) of variants and the factorial."""
        most = min(count, self.wide) if wide else count
        return range(most if self.draws else min(most, 1))

    def pairs(self) -> tuple[Mapping[str, str], ...]:
        """Settings of the data set for each ordered pair; one without any where it has no pairs."""
        found = PAIRS.get(self.dataset)
        return ({},) if found is None else tuple({"source": source, "target": target} for source, target in found)

    def missing(self, root: str | None) -> str | None:
        """Why the set cannot be run here; None if it can."""
        lacking = [path for word in self.settings(root) if (path := weights_of(word)) and not path.is_file()]
        if lacking:
            return f"no file {lacking[0].name} in {lacking[0].parent}; set --root or EMBASIS_DATA"
        try:
            load_dataset(self.dataset, 0, root, self.pairs()[0])
        except InputDataError as error:
            return str(error)
        return None


def weights_of(word: str) -> Path | None:
    """The file of weights that a setting names."""
    key, _, value = word.partition("=")
    return Path(value) if key == "network.weights" else None


def trained(name: str, dataset: str, word: str, epochs: int, preset: str | None = None) -> StudySet:
    """A set whose network has more to train than a linear classifier: it draws, it is slow, and it must be named."""
    words = (word,) if word else ()
    return StudySet(name, dataset, words, preset, draws=True, peers=False, wide=0, asked=True, all_epochs=epochs)


MAPS = ("scenes", "carla_camvid")
"""A picture has sites of many classes, so its class shares cannot be changed by leaving pictures out."""
FEW = 0.3
PLAIN = {
    each.name: each
    for each in (
        StudySet("digits", "digits", draws=True, wide=1, all_epochs=66),
        StudySet("office_caltech10_surf", "office_caltech10_surf"),
        StudySet("office_caltech10_googlenet", "office_caltech10_googlenet"),
        StudySet("office_caltech10", "office_caltech10"),
        StudySet("pacs", "pacs"),
        StudySet("office_caltech10_resnet50", "office_caltech10", RESNET_WORDS, wide=0),
        StudySet("pacs_resnet50", "pacs", RESNET_WORDS),
        StudySet("mnist_usps", "mnist_usps", SMALL_WORDS, draws=True, peers=False, wide=0, all_epochs=66),
        StudySet("wisdm", "wisdm"),
        StudySet("gas_drift", "gas_drift"),
        StudySet("heart_disease", "heart_disease"),
        StudySet("amazon_reviews", "amazon_reviews"),
        StudySet("spoken_digits", "spoken_digits", SPEECH_WORDS),
        StudySet(
            "spoken_digits_cnn", "spoken_digits", (*SMALL_WORDS, "standardise=domain"), draws=True, peers=False, wide=0,
            asked=True, all_epochs=66,
        ),
        trained("office_caltech10_adapter", "office_caltech10", "images.head=adapter", 66),
        trained("pacs_adapter", "pacs", "images.head=adapter", 66),
        trained("office_caltech10_partial", "office_caltech10", "images.depth=partial", 8),
        trained("pacs_partial", "pacs", "images.depth=partial", 8),
        trained("scenes", "scenes", "", 34),
        trained("carla_camvid", "carla_camvid", "", 12, preset="street-cpu"),
        StudySet("blobs", "blobs", draws=True, asked=True),
    )
}  # fmt: skip
SETS = PLAIN | {
    f"{name}_shares": replace(each, name=f"{name}_shares", share=FEW, draws=True, asked=True)
    for name, each in PLAIN.items()
    if name not in MAPS
}


def chosen_sets(names: Sequence[str]) -> list[StudySet]:
    """The sets of these names, or all that need not be asked for."""
    for name in names:
        require(name in SETS, f"unknown set {name!r}; known: {join_names(SETS)}", ConfigError)
    assert all(each.dataset in DATASETS for each in SETS.values())
    return [SETS[name] for name in names] or [each for each in SETS.values() if not each.asked]
