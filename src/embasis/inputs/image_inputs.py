"""Images before the training loop: the frozen part of a backbone, its features on disk, and what is left to train.

| depth | kept on disk for each image | trained |
| --- | --- | --- |
| frozen | features (d), float32 | a head on them |
| partial | maps (c, h, w) before the last stages, float16 | those stages and the classifier |
| full | nothing | everything |

So depth is only where the backbone is cut; the loop is the same for all. Rows are computed STEM_BATCH at a time, always
in that one shape, so that neither the batch an image comes in nor an interruption changes a bit of its features.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor, nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.class_labels import quote_names
from embasis.data.images.files import ImageFile
from embasis.data.images.folders import require_budget
from embasis.data.images.pixels import centre_view, convert_picture
from embasis.data.images.samples import Images
from embasis.data.reader import Reader
from embasis.distributed import current_world
from embasis.engine.features import CHUNK_ROWS, fill_up
from embasis.errors import ConfigError, CorruptError, InputDataError, NumericalError, require
from embasis.inputs import (
    FROZEN_WEIGHTS,
    IMAGE_KIND,
    NO_MAPS,
    InputKind,
    Inputs,
    InputSettings,
    ReadProgress,
    RowBatch,
    RowSource,
    SourceOptions,
    Watch,
    image_rows,
    refuse_settings,
    sides_of,
    watch_nothing,
)
from embasis.inputs.image_backbone import backbone_settings, make_backbone
from embasis.inputs.image_rows import STEM_BATCH, CachedFeatures, cache_key, find_cache, find_images, open_cache
from embasis.inputs.table_inputs import bind_array_network, first_shape, make_array_network, standardise_mode
from embasis.networks.backbone import Backbone
from embasis.networks.network import Network
from embasis.randomness import seeded
from embasis.resources import require_disk, require_memory, require_writable
from embasis.storage import SealedFiles
from embasis.storage.feature_cache import CACHE_ADVICE, FeatureCache
from embasis.types import Arrays, ImagePlan, Plan, Problem, RejectedFile, Samples

OWN_MODULE = "own module"
"""The name of a backbone that is a module of the user's own."""
SHARD_ROWS = 256
"""Rows of a file of features: what a crash can lose."""


@dataclass(eq=False)
class ImageInputs(Inputs):
    """How image files become inputs of the network that is trained."""

    kind: ClassVar[InputKind] = IMAGE_KIND

    backbone: Backbone
    plan: ImagePlan
    network: dict[str, Any]
    """The backbone's name and settings, resolved."""
    reader: Reader
    stem: nn.Module | None
    cache: FeatureCache | None
    failed: dict[bytes, str] = field(default_factory=dict)
    """Images that could not be read, by their digest."""
    files: tuple[ImageFile, ...] = ()
    """The files of the unlabelled rows that are trained on, in their order: the report shows a few of them."""
    known: FeatureCache | None = None
    """Features of earlier runs by the same frozen part; nothing is added to them."""

    @property
    def identity(self) -> str:
        """The hash of the backbone's weights."""
        return self.backbone.identity

    @property
    def trained(self) -> int:
        """Stages behind the cut."""
        return self.plan.stages if self.plan.depth == "partial" else 0

    def input_shape(self, problem: Problem) -> tuple[int, ...]:
        """The shape of a row; before images are read only the number of its dimensions is right."""
        if not self.must_read(problem):
            return first_shape(problem.labelled)
        return (self.backbone.features,) if self.plan.depth == "frozen" else (3, 1, 1)

    def resolve(self, config: Config, shape: tuple[int, ...], same_domain: bool) -> InputSettings:
        """At depth frozen the head is a network for vectors; else the backbone itself is trained."""
        refuse_settings("maps", config.maps, NO_MAPS)
        mode, frozen = standardise_mode(config, shape, same_domain), self.plan.depth == "frozen"
        deep = "is for rows in memory; at depth partial and full the network scales by itself: leave standardise out"
        require(mode == "none" or frozen, f"standardise = {mode} {deep}", ConfigError)
        if frozen:
            bind_array_network(self.plan.head, {})
        images = {name: value for name, value in asdict(self.plan).items() if name not in ("workers", "cache")}
        tables = {"standardise": mode, "network": self.network, "images": images, "maps": {}}
        return InputSettings(self.plan.head if frozen else "images", mode, tables, is_deep=not frozen)

    def refuse_plan(self, plan: Plan, shape: tuple[int, ...]) -> None:
        """Image files are augmented by a setting of their own."""
        rule = f"plan.augment = {plan.augment} is for pictures in arrays, (channels, height, width)"
        own = "image files have images.augment"
        require(not plan.augment, f"{rule}; {own}; the rows here have shape {shape}", ConfigError)

    def make_network(self, config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A head on features at depth frozen; else the backbone's trained part with a classifier."""
        if self.plan.depth == "frozen":
            return make_array_network(self.plan.head, {}, shape, classes, config.seed)
        return self.make_deep_network(classes)

    def frozen_weights(self) -> Mapping[str, Tensor] | None:
        """Those of the backbone, unless all of it is trained."""
        return None if self.stem is None else self.backbone.state()

    def make_deep_network(self, classes: int) -> Network:
        """The trained network of partial and full depth; the classifier starts at zero, so no draw decides anything."""
        body = self.backbone.tail(self.trained) if self.trained else self.backbone.whole()
        body = copy.deepcopy(body)  # the backbone stays as it was born: it is written down, and used by the next run
        network = Network(body, self.backbone.features, classes, by_domain=True)
        nn.init.zeros_(network.classifier.weight)
        nn.init.zeros_(network.classifier.bias)
        return network

    def iter_features(
        self, files: Sequence[ImageFile]
    ) -> Iterator[tuple[list[ImageFile], Tensor, dict[ImageFile, str]]]:
        """STEM_BATCH files at a time: those that can be read, the network's inputs for them, and why others cannot."""
        pieces = [range(first, min(first + STEM_BATCH, len(files))) for first in range(0, len(files), STEM_BATCH)]
        read = self.reader.batches(files, pieces, self.backbone.preparation)
        for piece, (images, broken) in zip(pieces, read, strict=True):
            good = [at for at in range(len(piece)) if at not in broken]
            reasons = {files[piece[at]]: reason for at, reason in broken.items()}
            yield [files[piece[at]] for at in good], self.forward_stem(images)[good], reasons

    def open_rows(self, source: Any, options: SourceOptions) -> RowSource:
        """The images of a folder or list, one file, a sequence of files, or pictures in memory."""
        if image_rows.has_tar_shards(source):
            return image_rows.open_shard_rows(source, options, self.iter_rows)
        given = find_images(source, options.follow_links)
        if given.pictures:
            return RowSource(self.iter_picture_rows(given.pictures), len(given.pictures), unit="images")
        given = given.take(options.part)
        rows = self.iter_rows(given.own_files(size := given.rows_of_piece()), size)
        return RowSource(rows, len(given.files), dict(given.rejected), "images", given.order, given.fingerprint)

    def iter_rows(self, files: Sequence[ImageFile], size: int = CHUNK_ROWS) -> Iterator[RowBatch]:
        """The rows of image files, `size` at a time; those of which features are kept are not read again."""
        cache = self.cache or self.known
        kept = set[bytes]() if cache is None else cache.find(file.digest for file in files)
        fresh = self.iter_features([file for file in files if file.digest not in kept])
        read, rejected = dict[ImageFile, Tensor](), dict[ImageFile, str]()
        for first in range(0, len(files), size):
            chunk = files[first : first + size]
            while any(file.digest not in kept and file not in read and file not in rejected for file in chunk):
                good, rows, reasons = next(fresh)
                read.update(zip(good, rows, strict=True))
                rejected.update(reasons)
            if cache is not None and (old := [file for file in chunk if file.digest in kept]):
                read.update(zip(old, cache.rows([file.digest for file in old]), strict=True))
            good = [file for file in chunk if file in read]
            x = torch.stack([read.pop(file) for file in good]) if good else torch.empty(0)
            ids = torch.tensor([file.id for file in good], dtype=torch.int64)
            broken = {file.name: rejected.pop(file) for file in chunk if file in rejected}
            yield RowBatch([file.name for file in good], x, ids, broken)

    def iter_picture_rows(self, pictures: Sequence[Any]) -> Iterator[RowBatch]:
        """The rows of pictures in memory, CHUNK_ROWS at a time: so many views are in memory, however many pictures."""
        for numbers in torch.arange(len(pictures)).split(CHUNK_ROWS):
            views = [centre_view(convert_picture(pictures[row]), self.backbone.preparation) for row in numbers.tolist()]
            pieces = [torch.stack(views[at : at + STEM_BATCH]) for at in range(0, len(views), STEM_BATCH)]
            x = torch.cat([self.forward_stem(piece) for piece in pieces])
            yield RowBatch([str(row) for row in numbers.tolist()], x, numbers)

    @torch.no_grad()
    def forward_stem(self, images: Tensor) -> Tensor:
        """The frozen part's output for at most STEM_BATCH prepared images, rounded as it is kept."""
        if self.stem is None:
            return images
        device = next(self.stem.buffers()).device  # those of its pixels: a module of the user's own may have no weights
        out: Tensor = self.stem(fill_up(images, STEM_BATCH).to(device))[: len(images)].cpu()
        out = out.half().float() if self.trained else out
        kept = "half" if self.trained else "single"
        broken = f"{self.backbone.name}: features of an image are not finite in {kept} precision"
        require(torch.isfinite(out).all(), f"{broken}; choose another depth or backbone", NumericalError)
        return out

    def must_read(self, problem: Problem) -> bool:
        """Whether the rows are image files that have not been read yet."""
        return isinstance(problem.labelled, Images) and problem.labelled.preparation is None

    def keeps_features(self, problem: Problem) -> bool:
        """Whether images are to be read into the feature cache."""
        return self.cache is not None and self.must_read(problem)

    def read(self, problem: Problem, budget: float, watch: Watch = watch_nothing) -> Problem:
        """The problem with features or prepared images in place of files; what was read before is not read again."""
        if not self.must_read(problem):
            return problem
        total, begun = 0, time.monotonic()
        for number, (done, total) in enumerate(self.cache_features(problem)):
            if not number:
                self.require_cache_room(total - done)
            watch(self._progress(done, total))
        if self.cache is not None:
            self.reader.close()  # training reads features only
        ready = self.feature_problem(problem)
        require_budget(ready.rejected, total + len(problem.rejected), budget)
        return replace(ready, read_seconds=problem.read_seconds + time.monotonic() - begun)

    def _progress(self, done: int, total: int) -> ReadProgress:
        what = f"{total:,} different images, {self.network['name']}, {self.plan.depth}"
        if self.cache is None:
            return ReadProgress(done, total, f"{what}: each is read once before training", "nothing is kept")
        kept = f"{done:,} of {total:,} images are in the feature cache"
        return ReadProgress(done, total, f"{what}: {done:,} of them are in the feature cache", kept)

    def require_cache_room(self, images: int) -> None:
        """The feature cache has room for so many more images; features of a frozen backbone fit into memory."""
        if self.cache is None or not images:
            return
        require_writable(self.cache.path, CACHE_ADVICE)
        shape = (3, self.backbone.preparation.size, self.backbone.preparation.size)
        one = self.forward_stem(torch.zeros(STEM_BATCH, *shape, dtype=torch.uint8))[0].numel()
        need = images * one * (2 if self.trained else 4)
        less = "images.depth=frozen keeps less" if self.trained else "free some"
        what = f"the feature cache of {images:,} more images"
        require_disk(self.cache.path, need, what, f"{less}, or images.cache=DIR names a folder on another disk")
        if not self.trained:
            hint = "images.depth=partial reads them from disk, or take fewer images"
            require_memory(2 * need, f"the features of {images:,} images", hint)

    def cache_features(self, problem: Problem) -> Iterator[tuple[int, int]]:
        """Read every image that is not in the cache yet, with a pause after each piece: (images done, images in all).

        What has been computed is on disk when this is closed, so that the next call goes on from there. With full depth
        nothing is kept: each image is read once to find those that cannot be, before hours of training.
        Several processes read some of the images each; where they do not share a cache, each then reads the rest, too.
        """
        sides = [side.files for side in sides_of(problem).values() if isinstance(side, Images)]
        files = {file.digest: file for file in chain(*sides)}
        world = current_world()
        own = [file for place, file in enumerate(files.values()) if world.owns(place // STEM_BATCH)]
        yield from self._read_missing(own, len(files))
        if world.size == 1:
            return
        self._share_failed()
        if self.cache is not None:
            self.cache.refresh()
            yield from self._read_missing(list(files.values()), len(files))
            self._share_failed()

    def _share_failed(self) -> None:
        """An image that one process cannot read is one that none can: all train on the same rows."""
        own = json.dumps({digest.hex(): reason for digest, reason in self.failed.items()})
        for text in current_world().collect_texts(own):
            self.failed |= {bytes.fromhex(digest): reason for digest, reason in json.loads(text).items()}

    def _read_missing(self, files: list[ImageFile], total: int) -> Iterator[tuple[int, int]]:
        """Read those of the files that are neither in the cache nor known to be unreadable; (images done, `total`)."""
        missing = [file for file in files if self.cache is None or file.digest not in self.cache]
        todo = [file for file in missing if file.digest not in self.failed]
        if self.cache is not None and todo:
            self.cache.require_writable()
        done, waiting = total - len(todo), list[tuple[list[bytes], Tensor]]()
        yield done, total
        try:
            for good, rows, reasons in self.iter_features(todo):
                self.failed.update({file.digest: reason for file, reason in reasons.items()})
                if self.cache is not None:
                    dtype = torch.float16 if self.trained else torch.float32
                    waiting.append(([file.digest for file in good], rows.to(dtype)))
                if sum(len(digests) for digests, _ in waiting) >= SHARD_ROWS:
                    self._keep(waiting)
                done += len(good) + len(reasons)
                yield done, total
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
        labelled, rows = self._side(problem.labelled, "labelled", rejected)
        other_names = {"labelled": names_at(problem.labelled, rows)}
        gone = {*problem.labelled.labels.tolist()} - {*labelled.labels.tolist()}
        names = quote_names(problem.schema.names[c] for c in gone)
        empty = f"labelled: classes without an image that can be read: {names}"
        require(not gone, f"{empty}; repair their images, or take these classes out", InputDataError)
        unlabelled, kept = self._side(problem.unlabelled, "unlabelled", rejected)
        files = problem.unlabelled.files if isinstance(problem.unlabelled, Images) else ()
        self.files = tuple(files[row] for row in kept.tolist())
        test = None
        if problem.test is not None:
            test, rows = self._side(problem.test, "test", rejected)
            other_names["test"] = names_at(problem.test, rows)
        hidden = problem.hidden_labels[kept] if isinstance(problem.hidden_labels, Tensor) else None
        row_names = None if problem.row_names is None else tuple(problem.row_names[row] for row in kept.tolist())
        return replace(
            problem, labelled=labelled, unlabelled=unlabelled, test=test, hidden_labels=hidden, row_names=row_names,
            other_names=other_names, rejected=tuple(rejected),
        )  # fmt: skip

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


def names_at(side: Samples, rows: Tensor) -> tuple[str, ...]:
    """The names of these files of a side."""
    return tuple(side.files[row].name for row in rows.tolist()) if isinstance(side, Images) else ()


def open_image_inputs(config: Config, backbone: Backbone | None = None, kept: bool = True) -> ImageInputs:
    """The inputs that [network] and [images] describe; `kept`: with a feature cache, else with what one has."""
    plan = settings.bind_settings("images", ImagePlan, config.images, tuple(ImagePlan.__dataclass_fields__))
    chosen = ImagePlan(**plan)
    network: dict[str, Any] = {"name": OWN_MODULE} if backbone is not None else backbone_settings(config)
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
    key = cache_key(backbone, trained)
    cache = open_cache(chosen.cache, key) if kept and stem is not None else None
    known = find_cache(key) if not kept and stem is not None else None
    if stem is not None and torch.cuda.is_available():
        stem = stem.cuda()
    return ImageInputs(backbone, chosen, network, Reader(chosen.workers), stem, cache, known=known)


def stored_image_inputs(
    metadata: Mapping[str, Any], config: Config, files: SealedFiles, backbone: Backbone | None
) -> ImageInputs:
    """The inputs of a stored run. A frozen part has its first weights; those of full depth are in the tensors."""
    home = files.path
    frozen = config.images.get("depth") != "full"
    if config.network.get("name") == OWN_MODULE:
        rule = f"{home}: the run was made with a module of your own; give it again: load({str(home)!r}, backbone=…)"
        require(backbone is not None, rule, InputDataError)
        inputs = open_image_inputs(config, backbone, kept=False)
        other = f"{home}: the module that is given is not the one the run was made with: its weights differ"
        require(not frozen or inputs.identity == metadata["backbone"], other, InputDataError)
        return inputs
    if frozen:
        files.check(FROZEN_WEIGHTS)
    given = {**config.network, "weights": str(home / FROZEN_WEIGHTS) if frozen else ""}
    if not frozen and "pretrained" in given:
        given["pretrained"] = False
    inputs = open_image_inputs(msgspec.structs.replace(config, network=given), kept=False)
    same = inputs.identity == metadata["backbone"] or not frozen
    require(same, f"{home / FROZEN_WEIGHTS} holds other weights than the run was trained with", CorruptError)
    return inputs
