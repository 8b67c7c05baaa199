"""Folders and lists of images as a problem: classes by name, leaks by bytes, unreadable files on a budget."""

from __future__ import annotations

import warnings

from embasis.data.images.check import check_images
from embasis.data.images.files import PathLike
from embasis.data.images.sides import (
    ImageOptions,
    ImageSide,
    assemble,
    common_text,
    gather,
    gather_labelled,
    hidden_notes,
    repeats_text,
    require_budget,
    require_filled,
    require_other_files,
    require_other_place,
    two_classes_text,
    with_hidden,
    without_folders,
)
from embasis.data.problem import listed, require_classes, require_known, require_labels, sort_names
from embasis.errors import EmbasisWarning, require
from embasis.types import Problem

__all__ = ["ImageOptions", "check_images", "load_images", "require_budget", "without_folders"]

DEFAULTS = ImageOptions()


def load_images(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    label: str = "label",
    options: ImageOptions = DEFAULTS,
) -> Problem:
    """A problem from two folders or lists of images (and a third to score on); nothing is decoded yet."""
    require_other_place(labelled, unlabelled)
    first, second = gather_labelled(labelled, label, options), gather(unlabelled, label, options)
    third = None if test is None else gather_labelled(test, label, options)
    sides = [side for side in (first, second, third) if side is not None]
    refused = [item for side in sides for item in side.scan.refused]
    require_budget(refused, sum(side.seen for side in sides), options.budget)
    require_other_files(first, second)
    notes = list(require_filled(first, options))
    require_labels(first.named)
    require_classes(first.named)
    names = sort_names(first.named.classes)
    second = with_hidden(second, set(names))
    if not second.is_folder and not options.allow_missing_class:
        require_known(second.named, names)
    notes += [*hidden_notes(second, set(names)), *_leaks(first, second)]
    if third is not None:
        third, more = _test_side(third, names, options)
        notes += [*more, *test_leaks(first, second, third, options)]
    return assemble(first, second, names, test=third, notes=notes)


def _leaks(first: ImageSide, second: ImageSide) -> list[str]:
    """Notes on files that are twice on a side, or on both sides."""
    texts = (repeats_text(first), two_classes_text(first), repeats_text(second), common_text(first, second))
    return [text for text in texts if text]


def _test_side(side: ImageSide, names: list[str], options: ImageOptions) -> tuple[ImageSide, list[str]]:
    """The test images of known classes, and notes on classes that differ."""
    require_labels(side.named)
    if not options.allow_missing_class:
        require_known(side.named, names)
    notes = []
    extra, lacking = side.named.classes - set(names), set(names) - side.named.classes
    if extra:
        reason = "its class is not on the labelled side"
        marked = zip(side.scan.files, side.labels or (), strict=True)
        outside = {file.name: reason for file, label in marked if label in extra}
        require(len(outside) < len(side.scan.files), f"{side.name}: no image has a class of the labelled side")
        side = side.without(outside, "scan", "refused")
        notes.append(f"{side.name}: left out, no class of the labelled side: {listed(extra)}")
    if lacking:
        notes.append(f"{side.name}: classes without a test image, their scores are n/a: {listed(lacking)}")
    return side, notes


def test_leaks(first: ImageSide, second: ImageSide, third: ImageSide, options: ImageOptions) -> list[str]:
    """Notes on test files that training sees; a warning, or an error, for those with labels."""
    leak = common_text(first, third)
    require(not (leak and options.forbid_leakage), f"{leak}; remove them from one side (data.forbid_leakage=true)")
    if leak:
        warnings.warn(EmbasisWarning(f"{leak}: scores on the test images are too good"), stacklevel=3)
    return [text for text in (repeats_text(third), leak, common_text(second, third)) if text]
