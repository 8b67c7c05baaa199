"""Images before the training loop: the frozen part of a backbone, its features on disk, and what is left to train.

| depth | kept on disk for each image | trained |
| --- | --- | --- |
| frozen | features (d), float32 | a head on them |
| partial | maps (c, h, w) before the last stages, float16 | those stages and the classifier |
| full | nothing | everything |

So depth is only where the backbone is cut; the loop is the same for all. Rows are computed PIECE at a time, always in
that one shape, so that neither the batch an image comes in nor an interruption changes a bit of its features.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.class_labels import listed
from embasis.data.images.decode import decode
from embasis.data.images.files import ImageFile
from embasis.data.images.header import UnreadableImage
from embasis.data.images.samples import Images
from embasis.data.workers.process import read_checked, request_for
from embasis.data.workers.reader import Reader
from embasis.engine.features import fill_up
from embasis.errors import ConfigError, InputDataError, NumericalError, ResourceError, quoted, require
from embasis.networks import PRETRAINED
from embasis.networks.backbone import Backbone
from embasis.networks.network import Network
from embasis.randomness import seeded
from embasis.report.collect import PixelReader
from embasis.storage import FeatureCache, cache_folder
from embasis.storage.feature_cache import CACHE_ADVICE as CACHE_HINT
from embasis.types import Arrays, ImagePlan, Problem, RejectedFile, RowSamples

DEFAULT = "efficientnet_lite0"
PIECE = 16
"""Images that go through the frozen part together."""
SHARD = 256
"""Rows of a file of features: what a crash can lose."""
PIXELS = 1
"""Raised when decoding or preparation changes a pixel: features that were kept before are then not used."""


@dataclass(frozen=True, eq=False)
class CachedFeatures(RowSamples):
    """Samples whose rows lie in the feature cache: read when they are asked for, so memory stays small."""

    cache: FeatureCache
    digests: tuple[bytes, ...]
    labels: Tensor
    ids: Tensor

    def inputs(self, rows: Tensor) -> Tensor:
        """Maps of the given rows."""
        return self.cache.rows([self.digests[row] for row in rows.tolist()])


@dataclass(eq=False)
class ImageInputs:
    """How image files become inputs of the network that is trained."""

    backbone: Backbone
    plan: ImagePlan
    network: dict[str, Any]
    """The backbone's name and settings, resolved."""
    reader: Reader
    stem: nn.Module | None
    cache: FeatureCache | None
    failed: dict[bytes, str] = field(default_factory=dict)
    """Images that could not be read, by their digest."""
    unlabelled: tuple[ImageFile, ...] = ()
    """The files of the unlabelled rows that are trained on, in their order: the report shows a few of them."""

    @property
    def trained(self) -> int:
        """Stages behind the cut."""
        return self.plan.stages if self.plan.depth == "partial" else 0

    def resolved(self) -> dict[str, Any]:
        """The settings that results depend on."""
        return {name: value for name, value in asdict(self.plan).items() if name not in ("workers", "cache")}

    def head(self, classes: int) -> Network:
        """The trained network of partial and full depth; the classifier starts at zero, so no draw decides anything."""
        body = self.backbone.tail(self.trained) if self.trained else self.backbone.whole()
        body = copy.deepcopy(body)  # the backbone stays as it was born: it is written down, and used by the next run
        network = Network(body, self.backbone.features, classes, by_domain=True)
        nn.init.zeros_(network.classifier.weight)
        nn.init.zeros_(network.classifier.bias)
        return network

    def iter_features(self, files: Sequence[ImageFile]) -> Iterator[tuple[Tensor, dict[int, str]]]:
        """The network's inputs for these files, PIECE by PIECE, and the positions in it that could not be read."""
        pieces = [range(first, min(first + PIECE, len(files))) for first in range(0, len(files), PIECE)]
        for images, broken in self.reader.batches(files, pieces, self.backbone.preparation):
            yield self.forward_stem(images), broken

    @torch.no_grad()
    def forward_stem(self, images: Tensor) -> Tensor:
        """The frozen part's output for at most PIECE prepared images, rounded as it is kept."""
        if self.stem is None:
            return images
        device = next(self.stem.buffers()).device  # those of its pixels: a module of the user's own may have no weights
        out: Tensor = self.stem(fill_up(images, PIECE).to(device))[: len(images)].cpu()
        out = out.half().float() if self.trained else out
        kept = "half" if self.trained else "single"
        broken = f"{self.backbone.name}: features of an image are not finite in {kept} precision"
        require(torch.isfinite(out).all(), f"{broken}; choose another depth or backbone", NumericalError)
        return out

    def cache_features(self, problem: Problem) -> Iterator[tuple[int, int]]:
        """Read every image that is not in the cache yet, with a pause after each piece: (images done, images in all).

        What has been computed is on disk when this is closed, so that the next call goes on from there. With full depth
        nothing is kept: each image is read once to find those that cannot be, before hours of training.
        """
        sides = (problem.labelled, problem.unlabelled, problem.test)
        files: dict[bytes, ImageFile] = {}
        for side in sides:
            files |= {file.digest: file for file in side.files} if isinstance(side, Images) else {}
        todo = [file for digest, file in files.items() if self.cache is None or digest not in self.cache]
        if self.cache is not None and todo:
            self.cache.require_writable()
        done, waiting = len(files) - len(todo), list[tuple[list[bytes], Tensor]]()
        yield done, len(files)
        try:
            for number, (rows, broken) in enumerate(self.iter_features(todo)):
                piece = todo[number * PIECE : (number + 1) * PIECE]
                self.failed.update({piece[at].digest: reason for at, reason in broken.items()})
                good = [at for at in range(len(piece)) if at not in broken]
                if self.cache is not None:
                    dtype = torch.float16 if self.trained else torch.float32
                    waiting.append(([piece[at].digest for at in good], rows[good].to(dtype)))
                if sum(len(digests) for digests, _ in waiting) >= SHARD:
                    self._keep(waiting)
                done += len(piece)
                yield done, len(files)
        finally:
            self._keep(waiting)

    def _keep(self, waiting: list[tuple[list[bytes], Tensor]]) -> None:
        """Write what waits as one shard."""
        if self.cache is not None and waiting:
            rows = torch.cat([rows for _, rows in waiting])
            self.cache.add([digest for digests, _ in waiting for digest in digests], rows)
        waiting.clear()

    def feature_problem(self, problem: Problem) -> Problem:
        """The problem that is trained on: rows in place of files, without those that could not be read."""
        rejected = list(problem.rejected)
        labelled, _ = self._side(problem.labelled, "labelled", rejected)
        gone = {*problem.labelled.labels.tolist()} - {*labelled.labels.tolist()}
        empty = f"labelled: classes without an image that can be read: {listed(problem.schema.names[c] for c in gone)}"
        require(not gone, f"{empty}; repair their images, or take these classes out", InputDataError)
        unlabelled, kept = self._side(problem.unlabelled, "unlabelled", rejected)
        files = problem.unlabelled.files if isinstance(problem.unlabelled, Images) else ()
        self.unlabelled = tuple(files[row] for row in kept.tolist())
        test = None if problem.test is None else self._side(problem.test, "test", rejected)[0]
        return replace(
            problem,
            labelled=labelled,
            unlabelled=unlabelled,
            test=test,
            hidden_labels=problem.hidden_labels[kept] if isinstance(problem.hidden_labels, Tensor) else None,
            row_names=None if problem.row_names is None else tuple(problem.row_names[row] for row in kept.tolist()),
            rejected=tuple(rejected),
        )

    def _side(
        self, side: Any, name: str, rejected: list[RejectedFile]
    ) -> tuple[Arrays | CachedFeatures | Images, Tensor]:
        """One side's rows, and which of its files they are."""
        require(isinstance(side, Images), "images are expected on both sides", InputDataError)
        bad = {row for row, file in enumerate(side.files) if file.digest in self.failed}
        for row in sorted(bad):
            rejected.append(RejectedFile(side.files[row].name, self.failed[side.files[row].digest], "read", name))
        kept = torch.tensor([row for row in range(len(side.files)) if row not in bad], dtype=torch.int64)
        require(len(kept) or not len(side.files), f"none of {len(side.files)} images can be read", InputDataError)
        chosen = side.take(kept)
        if self.cache is None:
            return chosen.prepared(self.backbone.preparation, self.reader, self.plan.augment), kept
        digests = tuple(file.digest for file in chosen.files)
        if self.trained or not digests:
            return CachedFeatures(self.cache, digests, chosen.labels, chosen.ids), kept
        return Arrays(self.cache.rows(digests), chosen.labels, chosen.ids), kept


def open_image_inputs(config: Config, backbone: Backbone | None = None, kept: bool = True) -> ImageInputs:
    """The front that [network] and [images] ask for; `kept`: with a feature cache."""
    plan = settings.bind("images", ImagePlan, config.images, tuple(ImagePlan.__dataclass_fields__))
    chosen = ImagePlan(**plan)
    network: dict[str, Any] = {"name": "own module"} if backbone is not None else backbone_settings(config)
    if backbone is None:
        with seeded(config.seed, "backbone"):
            backbone = make_backbone(network)
        network |= {"weights": Path(str(network["weights"])).name}  # no path of this machine goes into a run
    depth = chosen.depth
    if depth == "auto":
        depth = "full" if torch.cuda.is_available() else "frozen"
    chosen = replace(chosen, depth=depth)
    trained = chosen.stages if depth == "partial" else 0
    stem = None if depth == "full" else backbone.stem(trained)
    cache = open_cache(chosen.cache, key(backbone, trained)) if kept and stem is not None else None
    if stem is not None and torch.cuda.is_available():
        stem = stem.cuda()
    return ImageInputs(backbone, chosen, network, Reader(chosen.workers), stem, cache)


def open_cache(given: str, key: str) -> FeatureCache:
    """The feature cache in the folder that is given, else in the usual one."""
    try:
        return FeatureCache(cache_folder(given), key)
    except PermissionError as error:
        raise ResourceError(f"cannot read {error.filename}: {error.strerror}; {CACHE_HINT}") from error


def backbone_settings(config: Config) -> dict[str, Any]:
    """Name and settings of the backbone, with no default left out."""
    name = str(config.network.get("name", DEFAULT))
    entry = settings.entry_of("network", name)
    rule = (
        f"network {quoted(name)} is not for image files; known for them: {', '.join(PRETRAINED)} (timm as timm:MODEL)"
    )
    require(settings.family(name) in PRETRAINED, rule, ConfigError)
    given = {key: value for key, value in config.network.items() if key != "name"}
    bound = settings.bind("network", entry, given, settings.settings_of(entry))
    if model := name.partition(":")[2]:
        bound["model"] = model
    return {"name": name, **bound}


def make_backbone(network: Mapping[str, Any]) -> Backbone:
    """The backbone of these settings."""
    entry = settings.entry_of("network", str(network["name"]))
    made: Backbone = entry(**{key: value for key, value in network.items() if key != "name"})
    return made


def key(backbone: Backbone, trained: int) -> str:
    """What features depend on beside the image: the weights, the preparation, the cut, and a GPU's coarser products."""
    parts = [backbone.identity, repr(backbone.preparation), str(trained), str(PIECE), str(PIXELS)]
    parts += ["cuda"] if torch.cuda.is_available() else []
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def is_images(problem: Problem) -> bool:
    """Whether the problem's rows are image files that have not been read yet."""
    return isinstance(problem.labelled, Images) and problem.labelled.preparation is None


def pixel_reader(problem: Problem, inputs: ImageInputs | None) -> PixelReader | None:
    """What reads the pictures of the unlabelled rows, for the report; None where rows are no pictures."""
    if inputs is not None and inputs.unlabelled:
        return lambda row: read_pixels(inputs.unlabelled[row])
    side = problem.unlabelled
    if not isinstance(side, Arrays) or side.x.ndim != 4 or side.x.shape[1] not in (1, 3) or not side.x.numel():
        return None
    low, high = float(side.x.min()), float(side.x.max())
    span = 255 / (high - low) if high > low else 0.0
    return lambda row: ((side.x[row] - low) * span).round().to(torch.uint8).expand(3, -1, -1)


def read_pixels(file: ImageFile) -> Tensor | None:
    """The pixels of a file, or None: whoever reads the file for training reports what is wrong with it."""
    try:
        return decode(read_checked(request_for(file)))
    except (UnreadableImage, OSError):
        return None
