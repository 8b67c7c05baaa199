"""Street scenes as they are published: which classes their label maps have, under which numbers, and where files lie.

| set | pictures | label maps | numbers in the maps |
| --- | --- | --- | --- |
| GTA5 | `images/NNNNN.png` | `labels/NNNNN.png` | label ids of Cityscapes, as a palette's indices |
| SYNTHIA-RAND-CITYSCAPES | `RGB/NNNNNNN.png` | `GT/LABELS/NNNNNNN.png` | its own, first channel of 16-bit RGB |
| Cityscapes | `leftImg8bit/<split>/<city>/*_leftImg8bit.png` | `gtFine/…/*_gtFine_labelIds.png` | label ids |
| CARLA pack | `images/*.jpg` | `labels/*.png` | train ids |
| CamVid pack | `<split>/images/*.jpg` | `<split>/labels/*.png` | train ids |

A train id is the position of a class in STREET_CLASSES; every table keeps that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from embasis.types.maps import ClassTable


class StreetClass(NamedTuple):
    """One of the 19 classes of Cityscapes that are scored."""

    name: str
    colour: tuple[int, int, int]
    label_id: int
    """Its number in maps of Cityscapes and GTA5."""
    synthia_id: int
    """Its number in maps of SYNTHIA."""


_STREET = (
    StreetClass("road", (128, 64, 128), 7, 3),
    StreetClass("sidewalk", (244, 35, 232), 8, 4),
    StreetClass("building", (70, 70, 70), 11, 2),
    StreetClass("wall", (102, 102, 156), 12, 21),
    StreetClass("fence", (190, 153, 153), 13, 5),
    StreetClass("pole", (153, 153, 153), 17, 7),
    StreetClass("traffic light", (250, 170, 30), 19, 15),
    StreetClass("traffic sign", (220, 220, 0), 20, 9),
    StreetClass("vegetation", (107, 142, 35), 21, 6),
    StreetClass("terrain", (152, 251, 152), 22, 16),
    StreetClass("sky", (70, 130, 180), 23, 1),
    StreetClass("person", (220, 20, 60), 24, 10),
    StreetClass("rider", (255, 0, 0), 25, 17),
    StreetClass("car", (0, 0, 142), 26, 8),
    StreetClass("truck", (0, 0, 70), 27, 18),
    StreetClass("bus", (0, 60, 100), 28, 19),
    StreetClass("train", (0, 80, 100), 31, 20),
    StreetClass("motorcycle", (0, 0, 230), 32, 12),
    StreetClass("bicycle", (119, 11, 32), 33, 11),
)
"""In the order of their train ids."""
STREET_CLASSES = tuple(street.name for street in _STREET)
LABEL_IDS = tuple(street.label_id for street in _STREET)
SYNTHIA_IDS = tuple(street.synthia_id for street in _STREET)

ALL_19 = tuple(range(len(STREET_CLASSES)))
"""Train ids of all classes."""
_WITHOUT_16 = ("terrain", "truck", "train")
_WITHOUT_13 = (*_WITHOUT_16, "wall", "fence", "pole")
SYNTHIA_16 = tuple(number for number in ALL_19 if STREET_CLASSES[number] not in _WITHOUT_16)
"""Train ids of the classes that tables of SYNTHIA → Cityscapes score."""
SYNTHIA_13 = tuple(number for number in ALL_19 if STREET_CLASSES[number] not in _WITHOUT_13)
"""Train ids of the classes of mIoU*."""
CARLA_CAMVID_9 = (0, 1, 2, 4, 5, 7, 8, 10, 13)
"""Train ids of the classes that both the CARLA and the CamVid pack have."""


def class_names(train_ids: Sequence[int] = ALL_19) -> tuple[str, ...]:
    """Names of some of the 19 classes."""
    return tuple(STREET_CLASSES[number] for number in train_ids)


def label_id_table(train_ids: Sequence[int] = ALL_19) -> ClassTable:
    """Maps of Cityscapes and GTA5; all other label ids are ignored, as their evaluation does."""
    return _make_table(train_ids, LABEL_IDS, others=True)


def synthia_table(train_ids: Sequence[int] = SYNTHIA_16) -> ClassTable:
    """Maps of SYNTHIA-RAND-CITYSCAPES; void, parking slots, road works and lane markings are ignored."""
    return _make_table(train_ids, SYNTHIA_IDS, others=True, coded="first")


def train_id_table(train_ids: Sequence[int] = ALL_19) -> ClassTable:
    """Maps that hold train ids; 255 and the classes that are left out are ignored, any other number is an error."""
    left_out = tuple(number for number in ALL_19 if number not in train_ids)
    return _make_table(train_ids, ALL_19, ignore=(255, *left_out))


def _make_table(
    train_ids: Sequence[int],
    ids: Sequence[int],
    *,
    ignore: tuple[int, ...] = (255,),
    others: bool = False,
    coded: str = "ids",
) -> ClassTable:
    return ClassTable(
        names=class_names(train_ids),
        ids=tuple((ids[number],) for number in train_ids),
        colours=tuple(_STREET[number].colour for number in train_ids),
        ignore=ignore,
        others=others,
        coded=coded,
    )


@dataclass(frozen=True)
class Layout:
    """Where the pictures and label maps of a published set lie; `{split}` stands for the part of it."""

    name: str
    packs: tuple[str, ...]
    """Folders and tars that may hold the set; the root itself may, too."""
    images: str
    labels: str
    counts: dict[str, int] = field(default_factory=dict)
    """Published number of pictures of each split; "" where there are none."""
    image_end: str = ""
    label_end: str = ""
    """How names end, before .png; what stands before that is the same for a picture and its map."""
    kind: str = ".png"
    """How the pictures' names end; any other image is read as well."""
    cities: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The folders of each split, where they are published."""

    def folders(self, split: str) -> tuple[str, str]:
        """The folders of the pictures and of the label maps of a split."""
        return self.images.format(split=split), self.labels.format(split=split)

    def expected(self, split: str) -> str:
        """Where files of a split should lie, for a sentence."""
        images, labels = (f"{folder}/<city>" if self.cities else folder for folder in self.folders(split))
        return f"{images}/*{self.image_end}{self.kind} and {labels}/*{self.label_end}.png"


_TRAIN_CITIES = """
aachen bochum bremen cologne darmstadt dusseldorf erfurt hamburg hanover jena
krefeld monchengladbach strasbourg stuttgart tubingen ulm weimar zurich
"""

GTA5 = Layout("gta5", ("gta5", "GTA5"), "images", "labels", {"": 24_966})
SYNTHIA = Layout(
    "synthia",
    ("synthia", "SYNTHIA", "RAND_CITYSCAPES", "SYNTHIA_RAND_CITYSCAPES", "SYNTHIA-RAND-CITYSCAPES"),
    "RGB",
    "GT/LABELS",
    {"": 9_400},
)
CITYSCAPES = Layout(
    "cityscapes",
    ("cityscapes", "Cityscapes", "leftImg8bit_trainvaltest", "gtFine_trainvaltest"),
    "leftImg8bit/{split}",
    "gtFine/{split}",
    {"train": 2_975, "val": 500},
    image_end="_leftImg8bit",
    label_end="_gtFine_labelIds",
    cities={
        "train": tuple(_TRAIN_CITIES.split()),
        "val": ("frankfurt", "lindau", "munster"),
    },
)
CARLA = Layout("carla", ("carla_512x256", "carla", "CARLA"), "images", "labels", {"": 603}, kind=".jpg")
CAMVID = Layout(
    "camvid",
    ("camvid_trainval_480x360", "camvid", "CamVid"),
    "{split}/images",
    "{split}/labels",
    {"train": 367, "val": 101},
    kind=".jpg",
)
