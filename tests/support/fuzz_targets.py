"""Every reader of embasis as a function of bytes, with the errors that it may answer with.

| target | what reads the bytes |
| --- | --- |
| image, map | pictures: header, size and pixels; label maps of every coding |
| npy, npz, csv, parquet | tables, and rows of a .npy file on disk |
| pack, rows, mat | arrays of published sets |
| list, tar, visda | images named by a table, in an archive, in VisDA's list |
| tar_shard, parquet_shard | a shard of images, and a shard of a table that is read in batches |
| arrow, saved_info | a data set of Hugging Face on disk: its rows, as a table and as images; its .json files |
| corrections | the table of labels that a person has corrected |
| cvat | an archive of label maps that CVAT has exported |
| label_studio | the same as annotated tasks of Label Studio |
| classes, toml, json, words | what label maps mean; settings from files and key=value words |
| head, manifest, facts, tensors, lines, labels | files of a run folder, resealed so that the bytes are reached |
| weights | a safetensors file of the user |

An error that is not permitted, more than SECONDS or more than MEGABYTES for one input is a bug of ours.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks/

from benchmarks.array_file import ArrayFile

from embasis import config
from embasis.data.datasets.array_sets import ArraySet, read_array_set
from embasis.data.datasets.digit_sets import read_digit_pack as digit_pack
from embasis.data.datasets.domain_sets import _parse_visda_list as visda_names
from embasis.data.datasets.domain_sets import read_features as features
from embasis.data.encoding import learn_encoding
from embasis.data.images import header
from embasis.data.images import pixels as decode
from embasis.data.images.saved_images import scan_saved_images
from embasis.data.images.scan import scan_list, scan_tar
from embasis.data.images.tar_shards import open_tar_shards
from embasis.data.saved_dataset import find_saved_dataset, read_saved_table
from embasis.data.segmentation.audit import count_values
from embasis.data.segmentation.classes import read_class_file
from embasis.data.segmentation.cvat import open_masks
from embasis.data.segmentation.labels import BadMap, decode_map, read_map_header
from embasis.data.shards import find_shards
from embasis.data.table_shards import open_table_shards
from embasis.data.tables import WantedColumns, describe_table, encode_table, narrow_table, read_raw
from embasis.errors import CheckpointError, ConfigError, EmbasisWarning, InputDataError, require
from embasis.inputs.correction_table import read_corrections
from embasis.storage import read_jsonl, read_stored_table
from embasis.storage.checkpoints import FACTS, MANIFEST, TENSORS, encode_sealed, find_newest, load_generation, sha256
from embasis.types import ClassTable
from embasis.weights import files
from embasis.weights.torch_import import filter_archive

SECONDS, MEGABYTES = 2.0, 512
CORPUS = Path(__file__).parents[1] / "corpus"
TABLE = ClassTable(("road", "tree"), ((0,), (1,)), ((128, 64, 128), (107, 142, 35)))


@dataclass(frozen=True)
class Target:
    """One reader: `read(bytes, a folder for files)`, the errors it may raise, and words that its inputs are made of."""

    read: Callable[[bytes, Path], object]
    permitted: tuple[type[Exception], ...]
    words: tuple[bytes, ...] = ()


def placed(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of a file that is called `name`."""

    def run(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return run


def read_image(data: bytes, _: Path) -> object:
    read = header.read_header(data)
    size = decode.oriented_size(read, decode.read_orientation(data, read))
    pixels = decode.decode(data)
    assert tuple(pixels.shape) == (3, *size), f"{tuple(pixels.shape)} pixels, the header says {size}"
    return pixels


def read_map(data: bytes, _: Path) -> object:
    read_map_header(data)
    found = []
    for coded in ("ids", "colours", "first"):
        with suppress(BadMap):
            found += [
                count_values(data, coded),
                decode_map(data, ClassTable(TABLE.names, TABLE.ids, TABLE.colours, coded=coded)),
            ]
    return found


def read_array(path: Path) -> object:
    with suppress(InputDataError):
        read_raw(path)
    return [len(rows) for rows in ArrayFile(path)]


def read_mixed(path: Path) -> object:
    """A table, its columns encoded as they are."""
    table = read_raw(path)
    encoding, problems = learn_encoding([describe_table(table)])
    if encoding is None:
        return problems
    return narrow_table(encode_table(table, encoding, 1, path)[0]).x.shape


def read_rows(path: Path) -> object:
    return read_array_set(ArraySet("few", path.name, (3,), ("0", "1"), ("a", "b")), path.parent)


def read_tar_shard(path: Path) -> object:
    return open_tar_shards(find_shards(path.parent)).scan()


def read_parquet_shard(path: Path) -> object:
    shards = open_table_shards(find_shards(path.parent), WantedColumns("label", None, ()))
    return [len(table.x) for table, _ in shards.batches(range(shards.manifest.total))]


def read_arrow(path: Path) -> object:
    """The rows of a saved data set, as a table and as images; each may be refused by itself."""
    read: list[object] = []
    for kind in ("Value", "Image"):
        plant_saved(path.parent, kind, path.name)
        with suppress(InputDataError):
            dataset = find_saved_dataset(path.parent)
            assert dataset is not None
            if kind == "Image":
                read.append(scan_saved_images(dataset, "label"))
            else:
                table = read_saved_table(dataset, WantedColumns("label", None, ()))
                read.append(learn_encoding([describe_table(table)]))
    require(read, f"{path}: neither a table nor images")
    return read


def plant_saved(folder: Path, kind: str, data: str) -> None:
    """The .json files of a saved data set with a column of images, or without."""
    classes = {"names": ["x", "y"], "_type": "ClassLabel"}
    info = {"features": {"image": {"_type": kind}, "label": classes}}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": data}]}))


def read_saved_info(data: bytes, folder: Path) -> object:
    """Each of the .json files of a saved data set in turn."""
    (folder / "data.arrow").write_bytes((CORPUS / "arrow" / "images.arrow").read_bytes())
    read: list[object] = []
    for name in ("dataset_info.json", "state.json", "dataset_dict.json"):
        plant_saved(folder, "Image", "data.arrow")
        (folder / name).write_bytes(data)
        with suppress(InputDataError):
            dataset = find_saved_dataset(folder)
            read.append(dataset if dataset is None or not dataset.images else scan_saved_images(dataset, "label"))
    require(read, "none of the files of a data set")
    return read


def read_mat(path: Path) -> object:
    return features("office_caltech10_surf", path.parent, path.name)


def read_list(path: Path) -> object:
    (path.parent / "a.png").write_bytes((CORPUS / "image" / "rgb.png").read_bytes())
    return scan_list(path)


def read_words(data: bytes, _: Path) -> object:
    return config.load(overrides=data.decode("utf-8", "replace").split("\n"))


def read_marks(path: Path) -> object:
    return read_corrections(str(path), ("x", "y"), numbered=True)


def read_masks(path: Path) -> object:
    with open_masks(path, ("x", "y")) as archive:
        return [archive.read(name, (2, 2)).tolist() for name in archive.members]


def read_head(data: bytes, folder: Path) -> object:
    home = folder / "generations" / "000001"
    home.mkdir(parents=True)
    for name, content in {**published(), MANIFEST: (CORPUS / "manifest" / MANIFEST).read_bytes()}.items():
        (home / name).write_bytes(content)
    (folder / "HEAD").write_bytes(data)
    return find_newest(folder)


def published() -> dict[str, bytes]:
    """The files that the kept manifest belongs to."""
    return {TENSORS: (CORPUS / "tensors" / TENSORS).read_bytes(), FACTS: (CORPUS / "facts" / FACTS).read_bytes()}


def generation(name: str) -> Callable[[bytes, Path], object]:
    """A generation in which this file holds the bytes, with the hash and the seal that it then needs."""

    def run(data: bytes, folder: Path) -> object:
        home = folder / "generations" / "000001"
        home.mkdir(parents=True, exist_ok=True)
        content = published() if name == MANIFEST else {TENSORS: EMPTY_TENSORS, FACTS: b"{}\n", name: data}
        for file, part in content.items():
            (home / file).write_bytes(part)
        sums = {file: {"bytes": len(part), "sha256": sha256(part)} for file, part in content.items()}
        manifest = encode_sealed({"schema": 1, "generation": 1, "version": "0", "tensors": 0, "files": sums})
        if name == MANIFEST:
            with suppress(ValueError, RecursionError):  # a manifest that is JSON gets a proper seal
                found = json.loads(data)
                if isinstance(found, dict):
                    found.pop("seal", None)
                    data = encode_sealed(found)
            manifest = data
        (home / MANIFEST).write_bytes(manifest)
        return load_generation(folder, 1)

    return run


EMPTY_TENSORS = (2).to_bytes(8, "little") + b"{}"
PNG = (b"IHDR", b"IDAT", b"IEND", b"PLTE", b"tRNS", b"eXIf", b"acTL", b"\x89PNG\r\n\x1a\n")
PICTURES = (
    *PNG,
    b"GIF89a",
    b"BM",
    b"RIFF",
    b"WEBP",
    b"VP8X",
    b"II*\x00",
    b"MM\x00*",
    b"\xff\xd8\xff",
    b"P6 ",
    b"Exif\x00\x00",
)
NUMPY = (b"\x93NUMPY", b"'descr'", b"'shape': (", b"'<f8'", b"'|O'", b"fortran_order", b"9999999999", b"True")
TOML = (b"[plan]", b"[method]", b"name =", b"[[", b"]]", b'"""', b"1e999", b"inf", b"nan", b"ids", b"colour", b"=")
JSON = (b"{", b"}", b"[", b"]", b'"', b":", b"null", b"1e999", b"NaN", b"generation", b"files", b"schema", b"bytes")
TENSOR = (b'{"', b'"dtype":"F32"', b'"shape":[', b'"data_offsets":[0,', b"__metadata__", b"BOOL", b"99999999999")
TARGETS = {
    "image": Target(read_image, (header.UnreadableImage,), PICTURES),
    "map": Target(read_map, (BadMap,), PNG),
    "npy": Target(placed("x.npy", read_array), (InputDataError,), NUMPY),
    "npz": Target(placed("x.npz", read_raw), (InputDataError,), (*NUMPY, b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")),
    "csv": Target(
        placed("x.csv", read_mixed),
        (InputDataError,),
        (b",", b";", b"\t", b"\n", b'"', b"nan", b"1e999", b"\r", b"true", b"2026-11-18", b"9999-12-31T23:59", b"?"),
    ),
    "parquet": Target(placed("x.parquet", read_mixed), (InputDataError,), (b"PAR1", b"label", b"ARROW:schema")),
    "pack": Target(placed("mnist.npz", lambda path: digit_pack(path.parent, "mnist")), (InputDataError,), NUMPY),
    "rows": Target(placed("x.npz", read_rows), (InputDataError,), (*NUMPY, b"'<U1'")),
    "mat": Target(placed("x.mat", read_mat), (InputDataError,), (b"fts", b"labels", b"MATLAB", b"\x0e\x00\x00\x00")),
    "list": Target(placed("x.csv", read_list), (InputDataError,), (b"path,", b"\n", b"\\x", b"/", b"..", b"\x00")),
    "tar": Target(placed("x.tar", scan_tar), (InputDataError,), (b"ustar", b"\x00" * 512, b"../", b".png", b"7777777")),
    "tar_shard": Target(
        placed("x.tar", read_tar_shard),
        (InputDataError,),
        (b"ustar", b"\x00" * 512, b"../", b".png", b"7777777", b"path=", b"size=", b"././@LongLink"),
    ),
    "parquet_shard": Target(
        placed("x.parquet", read_parquet_shard), (InputDataError,), (b"PAR1", b"label", b"ARROW:schema")
    ),
    "arrow": Target(
        placed("data.arrow", read_arrow), (InputDataError,), (b"\xff" * 4, b"\0" * 8, b"label", b"bytes", b"\xff" * 8)
    ),
    "saved_info": Target(read_saved_info, (InputDataError,), (b"_data_files", b"filename", b"features", *JSON)),
    "visda": Target(lambda data, _: visda_names(data, "list"), (InputDataError,), (b"aeroplane/", b" 0\n", b"truck/")),
    "corrections": Target(
        placed("x.csv", read_marks),
        (InputDataError,),
        (b"id,", b";", b"label", b"corrected", b"unusable", b"true", b"\n", b"'="),
    ),
    "label_studio": Target(
        placed("x.json", read_marks),
        (InputDataError,),
        (b"[", b"{", b'"data"', b'"row":', b'"annotations":', b'"choices"', b"null", b"was_cancelled", b"1e999"),
    ),
    "cvat": Target(
        placed("x.zip", read_masks),
        (InputDataError,),
        (
            b"PK\x03\x04",
            b"PK\x01\x02",
            b"PK\x05\x06",
            b"labelmap.txt",
            b"SegmentationClass/",
            b"::\n",
            b"0,0,255",
            *PNG,
        ),
    ),
    "classes": Target(placed("classes.toml", read_class_file), (InputDataError,), TOML),
    "toml": Target(placed("x.toml", config.load), (ConfigError,), TOML),
    "json": Target(placed("config.json", config.load), (ConfigError,), JSON),
    "words": Target(
        read_words, (ConfigError,), (b"plan.", b"=", b"\n", b"rounds", b"method.name=", b"[", b'"', b"1e999")
    ),
    "head": Target(read_head, (CheckpointError,), JSON),
    "manifest": Target(generation(MANIFEST), (CheckpointError,), JSON),
    "facts": Target(generation(FACTS), (CheckpointError,), JSON),
    "tensors": Target(generation(TENSORS), (CheckpointError,), TENSOR),
    "lines": Target(placed("quarantine.jsonl", read_jsonl), (CheckpointError,), JSON),
    "labels": Target(placed("labels.parquet", read_stored_table), (CheckpointError,), (b"PAR1",)),
    "weights": Target(placed("w.safetensors", lambda path: files.read_weights(str(path))), (CheckpointError,), TENSOR),
    "foreign": Target(
        lambda data, _: filter_archive("w.pt", data),
        (CheckpointError,),
        (b"PK\x03\x04", b"ctorch\n", b"\x80\x02", b"Q."),
    ),
}
"""Names of the readers, and of the folders of their corpus."""


@dataclass(frozen=True)
class Cost:
    """What one input led to: its sentence if it has one, seconds, and megabytes beyond those that were there."""

    error: str
    seconds: float
    megabytes: float


def try_one(target: Target, data: bytes) -> Cost:
    """Read one input; an error that is not permitted is raised."""
    with tempfile.TemporaryDirectory() as folder:
        before, began = _reset_peak(), time.monotonic()
        error = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EmbasisWarning)  # a damaged HEAD is a warning
                target.read(data, Path(folder))
        except target.permitted as found:
            error = str(found)
        return Cost(error, time.monotonic() - began, _peak() - before)


def _reset_peak() -> float:
    """Begin to measure the peak of this process's memory anew; what it has now, in megabytes."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def corpus(name: str) -> list[tuple[str, bytes]]:
    """The kept inputs of a target; those that were bugs once have names that begin with `bug-`."""
    return [(path.name, path.read_bytes()) for path in sorted((CORPUS / name).iterdir())]
