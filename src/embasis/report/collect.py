"""What a run folder holds for the page of the run: made while the run goes on, read when the page is written.

| file in the run folder | content |
| --- | --- |
| basis/round-003.json | `components` of round 3: likeliest classes, share of the rows, names of the nearest rows |
| gallery/round-003/index.json | of label maps: a list of name, why, and the names of the files |
| gallery/round-003/NN-KIND.png | small copies: picture, labels, variance, trust, and true labels where they are known |
| gallery/rows-003.json | of other pictures: `items` (name, label, why, probability, trusted, true class); |
| | `pictures`, base64 by name; `labels`, the hash of the labels that they show |
| gallery/restyled.json | labelled pictures before and after a restyler (report/restyled.py) |

Pictures are decoded and encoded anew: no byte of the user's files goes into a page.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

from embasis.engine.labels import MapLabels
from embasis.engine.pixels import PixelLabels
from embasis.engine.scores import BasisSummary
from embasis.errors import CorruptError, require
from embasis.report import (
    MOST_BASIS_BYTES,
    MOST_COMPONENTS,
    MOST_PICTURE_BYTES,
    THUMBNAILS_EACH,
    Component,
    MapExample,
    RowExample,
    RunView,
)
from embasis.storage import Generation, SealedFiles, read_sealed
from embasis.storage.picture_formats import encode_grey_png, encode_label_png, encode_rgb_png, quantise_variance
from embasis.types import SELECTION_SCORE, ClassTable, Problem, record_from_json

BASIS_CLASSES = 3
"""The likeliest classes of a component that are stored."""
MAP_COPIES = ("picture", "labels", "variance", "trusted", "truth")
MAPS_EACH, MAP_SIDE = 4, 320
"""Of label maps: how many of the surest and of the least sure are shown, and the pixels of their long side."""
GALLERY_INDEX, OLD_MAP_GALLERY, OLD_ROW_GALLERY = "index.json", "gallery", "gallery/rows.json"
"""The last two are where runs by 0.1.0 have the pictures of their last round, not sealed."""
EXAMPLE_KINDS = ("surest", "least sure")
MOST_EXAMPLES, THUMBNAIL_SIDE, PNG_SIDE, JPEG_QUALITY = 800, 96, 32, 80
"""Of rows: how many are shown, the pixels of their long side, and up to which side they are PNG, not JPEG."""
LARGEST_BASIS_FILE, LARGEST_INDEX_FILE, LARGEST_COPY_FILE = 2**24, 2**20, 2**22
LARGEST_GALLERY_FILE = 2 * MOST_PICTURE_BYTES
"""Bytes of such files that are read."""
PixelReader = Callable[[int], Tensor | None]
"""uint8 (3, H, W) of a row; None when it cannot be read any more."""


class MapPictures(Protocol):
    """Unlabelled pictures of a run on label maps."""

    @property
    def sizes(self) -> Tensor:
        """(N, 2) height and width of each picture."""

    def picture(self, row: int) -> Tensor:
        """uint8 (3, H, W) of a row."""


def name_rows(problem: Problem, digits: int = 1) -> tuple[str, ...]:
    """What tables and files call the unlabelled rows: their names, or their ids with at least so many digits."""
    return problem.row_names or tuple(f"{number:0{digits}d}" for number in problem.unlabelled.ids.tolist())


def basis_name(number: int) -> str:
    """The file of a round's basis."""
    return f"basis/round-{number:03d}.json"


def map_gallery_folder(number: int) -> str:
    """The folder of a round's gallery of label maps."""
    return f"gallery/round-{number:03d}"


def row_gallery_name(number: int) -> str:
    """The file of a round's gallery of rows."""
    return f"gallery/rows-{number:03d}.json"


def labels_name(number: int) -> str:
    """The file of a round's labels, unless they are maps."""
    return f"labels/round-{number:03d}.parquet"


def pack_basis(summary: BasisSummary, problem: Problem) -> dict[str, Any]:
    """The components of a round as they are stored."""
    wanted, ids = {int(number) for number in summary.nearest.flatten()}, problem.unlabelled.ids.tolist()
    names = {number: name for number, name in zip(ids, name_rows(problem), strict=True) if number in wanted}
    top = summary.p.sort(dim=1, descending=True, stable=True)
    columns = (top.values.tolist(), top.indices.tolist(), summary.share.tolist(), summary.nearest.tolist())
    return {
        "components": [
            {
                "classes": [[problem.schema.names[c], p] for p, c in zip(values, order, strict=True)][:BASIS_CLASSES],
                "share": share,
                "nearest": [names[number] for number in near],
            }
            for values, order, share, near in zip(*columns, strict=True)
        ]
    }


def map_gallery_files(
    problem: Problem,
    samples: MapPictures,
    labels: MapLabels,
    table: ClassTable,
    variance: Mapping[str, float],
    number: int,
) -> dict[str, bytes]:
    """The files of a round's gallery: the pictures of the largest and of the smallest mean variance (by name)."""
    names, folder = name_rows(problem, digits=6), map_gallery_folder(number)
    order = sorted((row for row, name in enumerate(names) if name in variance), key=lambda row: -variance[names[row]])
    few = min(MAPS_EACH, len(order) // 2 or len(order))
    chosen = [(row, "least sure") for row in order[:few]]
    chosen += [(row, "surest") for row in order[len(order) - min(few, len(order) - few) :]]
    files, index = dict[str, bytes](), list[dict[str, str]]()
    for place, (row, why) in enumerate(chosen):
        copies = copy_map_row(problem, samples, labels, table, row)
        index.append({"name": names[row], "why": why, **{kind: f"{place:02d}-{kind}.png" for kind in copies}})
        files |= {f"{folder}/{place:02d}-{kind}.png": data for kind, data in copies.items()}
    return {**files, f"{folder}/{GALLERY_INDEX}": json.dumps(index).encode("ascii")}


def copy_map_row(
    problem: Problem, samples: MapPictures, labels: MapLabels, table: ClassTable, row: int
) -> dict[str, bytes]:
    """Small copies of one picture and its maps, as PNG."""
    size = fit_size(samples.sizes[row].tolist(), MAP_SIDE)
    batch = labels.part(row).enlarged(0, size)
    pixels = batch.distribution
    assert isinstance(pixels, PixelLabels)
    copies = {
        "picture": encode_rgb_png(resize_picture(samples.picture(row), size)),
        "labels": encode_label_png(pixels.label.to(torch.uint8).view(size), table),
        "variance": encode_grey_png(quantise_variance(pixels.total, len(problem.schema)).view(size)),
        "trusted": encode_grey_png(batch.pseudo.trusted.to(torch.uint8).mul_(255).view(size)),
    }
    if problem.hidden_labels is not None:
        copies["truth"] = encode_label_png(resize_truth(problem.hidden_labels[row], *size), table)
    return copies


def fit_size(size: Sequence[int], side: int) -> tuple[int, int]:
    """Height and width of a copy whose long side has at most `side` pixels."""
    height, width = size
    factor = min(1.0, side / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def resize_picture(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """uint8 (3, H, W) at another size."""
    if tuple(pixels.shape[1:]) == size:
        return pixels.contiguous()
    resized = F.interpolate(pixels.unsqueeze(0).float(), size, mode="bilinear", antialias=True)[0]
    return resized.round().clamp(0, 255).to(torch.uint8)


def resize_truth(truth: Tensor, height: int, width: int) -> Tensor:
    """A map of class numbers at another size, uint8; 255 where nothing is known."""
    rows = torch.arange(height) * truth.shape[0] // height
    columns = torch.arange(width) * truth.shape[1] // width
    small = truth[rows.unsqueeze(1), columns]
    return torch.where(small < 0, 255, small).to(torch.uint8)


def encode_thumbnail(pixels: Tensor, side: int = THUMBNAIL_SIDE) -> bytes:
    """A small copy of uint8 (3, H, W): PNG where it is tiny, since it is shown enlarged, else JPEG without metadata."""
    from PIL import Image

    small = resize_picture(pixels, fit_size(pixels.shape[1:], side))
    if max(small.shape[1:]) <= PNG_SIDE:
        return encode_rgb_png(small)
    out = io.BytesIO()
    Image.fromarray(small.permute(1, 2, 0).contiguous().numpy()).save(out, "JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def choose_examples(labels: Mapping[str, Sequence[Any]], classes: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(row, kind), the best of every class and kind first, then the second ones …; no row twice."""
    uncertainty = labels.get("uncertainty") or [1 - p for p in labels["probability"]]
    rows_by_class: dict[str, list[int]] = {name: [] for name in classes}
    for row in sorted(range(len(uncertainty)), key=lambda row: (uncertainty[row], row)):
        rows_by_class.setdefault(labels["label"][row], []).append(row)
    for rank in range(THUMBNAILS_EACH):
        for rows in rows_by_class.values():
            if rank < (len(rows) + 1) // 2:
                yield rows[rank], EXAMPLE_KINDS[0]
            if rank < len(rows) // 2:
                yield rows[-1 - rank], EXAMPLE_KINDS[1]


def make_row_gallery(
    problem: Problem, read: PixelReader | None, labels: Mapping[str, Sequence[Any]] | None, basis: Sequence[Component]
) -> dict[str, Any] | None:
    """What is stored as a round's gallery of rows; None where rows are no pictures, so that `read` is None."""
    if read is None or not labels or not labels["id"]:
        return None
    names, thumbnails, items = name_rows(problem), ThumbnailSet(read), list[dict[str, Any]]()
    hidden = problem.hidden_labels if isinstance(problem.hidden_labels, Tensor) else None
    for row, why in choose_examples(labels, problem.schema.names):
        if len(items) < MOST_EXAMPLES and thumbnails.add(names[row], row, MOST_PICTURE_BYTES - MOST_BASIS_BYTES):
            true = -1 if hidden is None else int(hidden[row])
            line = {key: labels[key][row] for key in ("label", "probability", "trusted")}
            truth = problem.schema.names[true] if true >= 0 else None
            items.append({"name": names[row], "why": why, "true": truth, **line})
    rows = {name: row for row, name in enumerate(names)}
    for component in sorted(basis, key=lambda component: -component.share)[:MOST_COMPONENTS]:
        for name in (name for name, _ in component.nearest if name in rows):
            thumbnails.add(name, rows[name], MOST_PICTURE_BYTES)
    return {"items": items, "pictures": thumbnails.encode()}


class ThumbnailSet:
    """Small pictures by name, up to a number of bytes."""

    def __init__(self, read: PixelReader) -> None:
        self.read, self.pictures, self.bytes = read, dict[str, bytes](), 0

    def add(self, name: str, row: int, most: int) -> bool:
        """Whether the picture is there now, with at most so many bytes in all."""
        if name in self.pictures or self.bytes >= most:
            return name in self.pictures
        pixels = self.read(row)
        if pixels is None or self.bytes + len(data := encode_thumbnail(pixels)) > most:
            return False
        self.pictures[name], self.bytes = data, self.bytes + len(data)
        return True

    def encode(self) -> dict[str, str]:
        """As JSON holds them."""
        return {name: base64.b64encode(data).decode() for name, data in self.pictures.items()}


def view_generation(
    path: Path,
    newest: Generation,
    environment: dict[str, Any],
    refused: tuple[dict[str, Any], ...],
    palette: tuple[tuple[int, int, int], ...],
    pictures: int,
) -> RunView:
    """All that the page shows of a run folder; CorruptError when a byte of it is not as the run wrote it.

    Colours of the classes and the number of `pictures` are those of a run on label maps."""
    facts, files = newest.facts, SealedFiles(path, newest.sealed)
    rounds = tuple(record_from_json(row) for row in facts["records"])
    scored = all(SELECTION_SCORE in record.scores for record in rounds)
    require(scored, f"{path}: the run's facts are damaged: a round has no score {SELECTION_SCORE!r}", CorruptError)
    kept, shown = kept_round(facts), shown_round(facts)
    items, thumbnails = read_row_gallery(files, shown, files.seal(labels_name(shown)))
    return RunView(
        config=facts["config"],
        environment=environment,
        rounds=rounds,
        timings=facts["timings"],
        labels=read_label_columns(files, shown),
        status=str(facts["progress"]["status"]),
        best_round=kept,
        classes=tuple(facts["classes"]),
        notes=tuple(str(note) for note in facts.get("notes", ())),
        corrected=int(facts.get("corrected", 0)),
        gallery=read_map_gallery(files, shown),
        palette=palette,
        pictures=pictures,
        items=items,
        basis=read_components(files, kept, thumbnails),
        refused=refused,
    )


def shown_round(facts: Mapping[str, Any]) -> int:
    """The round whose labels the page shows: the last one, or the one that was chosen."""
    kept = facts["progress"].get("kept")
    return max(len(facts["records"]) - 1, 0) if kept is None else int(kept)


def kept_round(facts: Mapping[str, Any]) -> int:
    """The round whose model is kept: the last one, the one that was chosen, or the best one after a collapse."""
    collapsed = facts["progress"].get("kept") is None and facts["progress"]["status"] == "collapsed"
    return int(facts["progress"]["best_round"]) if collapsed else shown_round(facts)


def read_label_columns(files: SealedFiles, number: int) -> dict[str, list[Any]] | None:
    """The columns of a round's labels; None for label maps, and before the first round has ended."""
    name = labels_name(number)
    return files.table(name) if name in files else None


@contextmanager
def explain_malformed(what: str) -> Iterator[None]:
    """CorruptError for values that are missing or of another kind."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptError(f"{what}: {error}") from error


def read_components(files: SealedFiles, number: int, pictures: Mapping[str, bytes]) -> tuple[Component, ...]:
    """The components of a round, with small pictures of their nearest rows; none where none are stored."""
    name = basis_name(number)
    if name not in files or not (files.path / name).exists():  # a user may have deleted it
        return ()
    with explain_malformed(f"{files.path / name} is not a basis"):
        return tuple(parse_component(row, pictures) for row in files.json(name, LARGEST_BASIS_FILE)["components"])


def parse_component(row: Mapping[str, Any], pictures: Mapping[str, bytes]) -> Component:
    """One component as the page shows it."""
    classes = tuple((str(name), float(p)) for name, p in row["classes"])
    require(classes, "a component has no class", CorruptError)
    return Component(
        classes, float(row["share"]), tuple((str(name), pictures.get(str(name))) for name in row["nearest"])
    )


def read_map_gallery(files: SealedFiles, number: int) -> tuple[MapExample, ...]:
    """The label maps that a round shows, if it has any; names in the index lead nowhere but to its own files."""
    folders = (map_gallery_folder(number), OLD_MAP_GALLERY)
    folder = next((folder for folder in folders if f"{folder}/{GALLERY_INDEX}" in files), None)
    if folder is None or not (files.path / folder).exists():  # a user may have deleted it
        return ()
    with explain_malformed(f"{files.path / folder / GALLERY_INDEX}"):
        rows = files.json(f"{folder}/{GALLERY_INDEX}", LARGEST_INDEX_FILE)
        return tuple(parse_map_example(files, folder, place, row) for place, row in enumerate(rows))


def parse_map_example(files: SealedFiles, folder: str, place: int, row: Mapping[str, Any]) -> MapExample:
    """One line of the index with its pictures."""
    rule = f"{folder}/{GALLERY_INDEX} names more than {2 * MAPS_EACH} pictures"
    require(place < 2 * MAPS_EACH, rule, CorruptError)
    copies = {
        kind: files.read(f"{folder}/{place:02d}-{kind}.png", LARGEST_COPY_FILE) for kind in MAP_COPIES if kind in row
    }
    return MapExample(str(row["name"]), str(row["why"]), **copies)


def read_row_gallery(
    files: SealedFiles, number: int, labels: str | None
) -> tuple[tuple[RowExample, ...], dict[str, bytes]]:
    """The rows that show a round's labels, which have that hash, and all small pictures; none where none are stored."""
    file = files.path / row_gallery_name(number)
    if os.path.lexists(file):
        stored = read_sealed(file, LARGEST_GALLERY_FILE + 1)
        rule = f"{file} shows other labels than those of the run; the fit command that made the run makes it again"
        require(stored.get("labels") == labels, rule, CorruptError)
    elif OLD_ROW_GALLERY in files:
        file, stored = files.path / OLD_ROW_GALLERY, files.json(OLD_ROW_GALLERY, LARGEST_GALLERY_FILE)
    else:
        return (), {}
    with explain_malformed(f"{file} is not a gallery"):
        pictures = {str(name): base64.b64decode(data, validate=True) for name, data in stored["pictures"].items()}
        return tuple(parse_row_example(row, pictures) for row in stored["items"]), pictures


def parse_row_example(row: Mapping[str, Any], pictures: Mapping[str, bytes]) -> RowExample:
    """One row of the gallery."""
    name, true = str(row["name"]), row["true"]
    truth, trusted = None if true is None else str(true), bool(row["trusted"])
    why, label, probability = str(row["why"]), str(row["label"]), float(row["probability"])
    return RowExample(name, why, label, probability, trusted, truth, pictures[name])
