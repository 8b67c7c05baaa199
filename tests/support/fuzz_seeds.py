"""The first inputs of the corpus: small files of every kind that is read.

`python tests/support/fuzz_seeds.py` writes them.

Inputs that were bugs once lie beside them, as `bug-…`; they are kept for ever.
"""

from __future__ import annotations

import io
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from scipy.io import savemat

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

PIXELS = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def images() -> dict[str, bytes]:
    """One of each format and mode."""
    rgb = Image.fromarray(PIXELS)
    grey, wide = rgb.convert("L"), Image.fromarray(np.arange(35, dtype=np.uint16).reshape(5, 7) * 1800)
    palette = rgb.quantize(8)
    exif = Image.Exif()
    exif[0x0112] = 6
    two = [grey, Image.new("L", (7, 5), 9)]
    return {
        "rgb.png": saved(rgb, "PNG"),
        "alpha.png": saved(rgb.convert("RGBA"), "PNG"),
        "palette.png": saved(palette, "PNG", transparency=1),
        "grey16.png": saved(wide, "PNG"),
        "bit.png": saved(grey.convert("1"), "PNG"),
        "turned.png": saved(rgb, "PNG", exif=exif),
        "two.png": saved(two[0], "PNG", save_all=True, append_images=two[1:]),
        "rgb.jpg": saved(rgb, "JPEG"),
        "turned.jpg": saved(rgb, "JPEG", exif=exif),
        "progressive.jpg": saved(rgb, "JPEG", progressive=True),
        "cmyk.jpg": saved(rgb.convert("CMYK"), "JPEG"),
        "rgb.bmp": saved(rgb, "BMP"),
        "palette.bmp": saved(palette, "BMP"),
        "two.gif": saved(palette, "GIF", save_all=True, append_images=[palette.rotate(180)]),
        "rgb.webp": saved(rgb, "WEBP"),
        "lossless.webp": saved(rgb.convert("RGBA"), "WEBP", lossless=True),
        "turned.webp": saved(rgb, "WEBP", exif=exif),
        "rgb.tif": saved(rgb, "TIFF"),
        "lzw.tif": saved(rgb, "TIFF", compression="tiff_lzw"),
        "pages.tif": saved(two[0], "TIFF", save_all=True, append_images=two[1:]),
        "wide.tif": saved(wide, "TIFF"),
        "cmyk.tif": saved(rgb.convert("CMYK"), "TIFF"),
        "rgb.ppm": saved(rgb, "PPM"),
        "plain.pgm": b"P2\n# words\n3 2\n255\n0 1 2 3 4 255\n",
        "bit.pbm": saved(grey.convert("1"), "PPM"),
    }


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def maps() -> dict[str, bytes]:
    """Numbers, palettes, colours and 16 bits, interlaced too."""
    ids = Image.fromarray((np.arange(35) % 3).astype(np.uint8).reshape(5, 7))
    palette = ids.copy()
    palette.putpalette([128, 64, 128, 107, 142, 35, 0, 0, 0])
    rows = b"".join(b"\x00" + bytes(range(7 * 6)) for _ in range(5))
    head = struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0)
    wide = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    grey = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 1)
    laced = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", grey) + chunk(b"IDAT", zlib.compress(b"\x00\x01"))
    return {
        "ids.png": saved(ids, "PNG"),
        "palette.png": saved(palette, "PNG", transparency=2),
        "bits.png": saved(palette, "PNG", bits=2),
        "colours.png": saved(palette.convert("RGB"), "PNG"),
        "clear.png": saved(palette.convert("RGBA"), "PNG"),
        "grey16.png": saved(Image.fromarray(np.arange(35, dtype=np.uint16).reshape(5, 7)), "PNG"),
        "first.png": wide,
        "laced.png": laced + chunk(b"IEND", b""),
        "photo.jpg": saved(ids, "JPEG"),
    }


def arrays() -> dict[str, dict[str, bytes]]:
    """.npy and .npz files."""
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.array(["a", "b", "a", "b"])
    npy, npz = {}, {}
    kinds = {"f4": x, "f8": x.astype("f8"), "u1": x.astype("u1"), "fortran": np.asfortranarray(x), "deep": x[None]}
    kinds |= {"complex": x.astype("c8"), "half": x.astype("f2"), "flat": x[0], "text": y}
    for name, array in kinds.items():
        np.save(stream := io.BytesIO(), array, allow_pickle=False)
        npy[f"{name}.npy"] = stream.getvalue()
    np.lib.format.write_array(stream := io.BytesIO(), x, version=(2, 0))
    npy["second.npy"] = stream.getvalue()
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(stream := io.BytesIO(), x=x, y=y, id=np.arange(4))
        npz[f"{name}.npz"] = stream.getvalue()
    digits = {f"{part}_x": np.zeros((2, 4, 4), np.uint8) for part in ("train", "test")}
    digits |= {f"{part}_y": np.array([3, 7], np.uint8) for part in ("train", "test")}
    np.savez(stream := io.BytesIO(), **digits)
    np.savez(rows := io.BytesIO(), X=x, y=np.array([0, 1, 0, 1]), domain=y)
    mat = {}
    for packed in (False, True):
        savemat(at := io.BytesIO(), {"fts": x, "labels": np.array([[1], [2], [1], [10]])}, do_compression=packed)
        mat[f"{'packed' if packed else 'plain'}.mat"] = at.getvalue()
    return {
        "npy": npy,
        "npz": npz,
        "pack": {"digits.npz": stream.getvalue()},
        "rows": {"two.npz": rows.getvalue()},
        "mat": mat,
    }


def tables() -> dict[str, dict[str, bytes]]:
    """.csv, .parquet, lists of images, corrections."""
    columns = {"id": [3, 1, 2], "a": [0.5, 1.5, 2.5], "b": [1, 2, 3], "label": ["x", "y", "x"]}
    parquet = {}
    for packed in ("snappy", "zstd", "none"):
        pq.write_table(pa.table(columns), stream := io.BytesIO(), compression=packed)
        parquet[f"{packed}.parquet"] = stream.getvalue()
    dated = {
        "c": ["x", None, "y"],
        "d": pa.array([0, None, 86_400_000_001], pa.timestamp("us")),
        "e": [True, None, False],
    }
    pq.write_table(pa.table({**dated, "f": pa.array([1, 2, None], pa.date32())}), stream := io.BytesIO())
    mixed = {"mixed.parquet": stream.getvalue()}
    text = {
        "plain.csv": b"id,a,b,label\n3,0.5,1,x\n1,1.5,2,y\n",
        "quoted.csv": b'\xef\xbb\xbf"a","label"\r\n"1","x,\ny"\r\n\r\n2,"""z"""\r\n',
        "semicolons.csv": b'\xef\xbb\xbfid;a;"b,c";label\r\n3;0,5;1;x\r\n1;1,25;2;"y;z"\r\n',
        "tabs.csv": b"a\tb\tlabel\n1,250\t0,5\tx\n-2\t3\ty\n",
        "odd.csv": "a,label\n1e300,é\n-0,\n".encode(),
        "mixed.csv": "c,d,e,f\nrød,2026-11-18 09:30,True,1\n?,,false,\nblå,1969-02-28T23:59:59.5Z,,2.5\n".encode(),
    }
    lists = {"paths.csv": b"path,label\na.png,x\nsub/b\\xff.png,y\n", "only.csv": b'path\n"../c.png"\n/d.png\n'}
    corrections = {
        "marked.csv": b"id,label,corrected\n1,x,\n2,y,x\n3,x,yes\n",
        "reviewed.csv": b"id,label,predicted,unusable\n1,x,y,\n2,,y,true\n",
        "mixed.csv": b"id;label;corrected\n1;x;\n2;y;yes\n3;x;y\n",
        "paths.csv": b"path,label\na.png,x\n",
        "excel.csv": b"\xef\xbb\xbfid,label\n1.0,'=x\n",
    }
    tasks = {
        "tasks.json": b'[{"data":{"row":"1"},"annotations":[{"result":[{"type":"choices","from_name":"class",'
        b'"value":{"choices":["x"]}}],"was_cancelled":false}]},{"data":{"row":2},"annotations":[]}]'
    }
    return {
        "label_studio": tasks,
        "csv": text,
        "parquet": parquet | mixed,
        "list": lists,
        "corrections": corrections,
        "labels": dict(parquet),
    }


def archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in {"a/1.png": images()["rgb.png"], "b/é.png": images()["bit.png"]}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()[:5120]


def settings() -> dict[str, dict[str, bytes]]:
    """classes.toml, config.toml, config.json and words."""
    classes = b'coded = "ids"\nignore = [255]\n\n[[class]]\nname = "road"\nid = 0\ncolour = [128, 64, 128]\n\n'
    classes += b'[[class]]\nname = "tree"\nids = [1, 2]\ncolour = "#6b8e23"\n'
    toml = b'seed = 3\n\n[method]\nname = "em_basis"\n\n[plan]\nrounds = 2\nlr = 1e-3\n\n[network]\nname = "mlp"\n'
    return {
        "classes": {"two.toml": classes},
        "toml": {"plain.toml": toml},
        "json": {"plain.json": b'{"seed": 3, "plan": {"rounds": 2}, "method": {"name": "cbst"}}'},
        "words": {"some": b'plan.rounds=2\nseed=3\nmethod.name=cbst\nsave_seconds=1.5\nnetwork.name="mlp"'},
        "visda": {"list.txt": b"aeroplane/a.png 0\nbicycle/b.png 1\n"},
    }


def run_files() -> dict[str, dict[str, bytes]]:
    """What lies in a run folder, and weights."""
    from safetensors.torch import save

    from embasis.storage import RunFolder

    tensors = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor([1, 2])}
    with tempfile.TemporaryDirectory() as name:
        with RunFolder(Path(name) / "run") as run:
            run.publish(tensors, {"classes": ["a", "b"], "records": [], "progress": {"round": 1}})
        home = next((Path(name) / "run" / "generations").iterdir())
        files = {path.name: path.read_bytes() for path in home.iterdir()}
        head = (Path(name) / "run" / "HEAD").read_bytes()
    half = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    line = b'{"name": "a.png", "phase": "scan", "reason": "the file is empty", "side": "labelled"}\n'
    return {
        "head": {"HEAD": head},
        "manifest": {"manifest.json": files["manifest.json"]},
        "facts": {"facts.json": files["facts.json"]},
        "tensors": {"tensors.safetensors": files["tensors.safetensors"], "none.safetensors": save({})},
        "lines": {"quarantine.jsonl": line * 2},
        "weights": {"single.safetensors": save(tensors), "half.safetensors": save(half)},
    }


def foreign() -> dict[str, bytes]:
    """Weights as PyTorch writes them, now and before 2020."""
    found, tensors = {}, {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor([1, 2])}
    for name, new in (("archive.pt", True), ("legacy.pt", False)):
        torch.save(tensors, stream := io.BytesIO(), _use_new_zipfile_serialization=new)
        found[name] = stream.getvalue()
    return found


def cvat() -> dict[str, bytes]:
    """An archive of CVAT with one map of 2 × 2 pixels."""
    Image.new("RGB", (2, 2), (0, 0, 255)).save(mask := io.BytesIO(), "PNG")
    files = {
        "labelmap.txt": b"background:0,0,0::\nx:0,0,255::\ny:9,8,7::\n",
        "SegmentationClass/a.png": mask.getvalue(),
    }
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(zipfile.ZipInfo("labelmap.txt"), files["labelmap.txt"], zipfile.ZIP_LZMA)
    return {"masks.zip": stream.getvalue(), "lzma.zip": packed.getvalue()}


def tar_shards() -> dict[str, bytes]:
    """Shards of images with a label, a long name and a link, as GNU and as POSIX write them."""
    picture, made = saved(Image.fromarray(PIXELS), "PNG"), dict[str, bytes]()
    files = {"b/0001.png": picture, "b/0001.cls": b"3", f"{'x' * 60}/{'ö' * 50}.png": picture}
    for name, form in (("gnu.tar", tarfile.GNU_FORMAT), ("pax.tar", tarfile.PAX_FORMAT)):
        with tarfile.open(fileobj=(stream := io.BytesIO()), mode="w", format=form) as tar:
            for path, data in files.items():
                (info := tarfile.TarInfo(path)).size = len(data)
                tar.addfile(info, io.BytesIO(data))
            (link := tarfile.TarInfo("link.png")).type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
        whole = stream.getvalue().rstrip(b"\0")
        made[name] = whole + bytes(-len(whole) % 512 + 1024)
    return made


def parquet_shards() -> dict[str, bytes]:
    """Shards in several groups of rows, one of numbers alone."""
    rows = pa.table({
        "a": [0.5 * row for row in range(20)], "t": ["ab"[row % 2] for row in range(20)],
        "label": ["xy"[row % 2] for row in range(20)],
    })  # fmt: skip
    pq.write_table(rows, groups := io.BytesIO(), row_group_size=6, compression="zstd")
    pq.write_table(rows.select(["a", "label"]), numbers := io.BytesIO())
    return {"groups.parquet": groups.getvalue(), "numbers.parquet": numbers.getvalue()}


def heic_images() -> dict[str, bytes]:
    """A HEIC as it is, and one on its side; the kept ones stay where pillow-heif is not installed."""
    try:
        from pillow_heif import from_pillow
    except ImportError:
        return {}
    made, exif = dict[str, bytes](), Image.Exif()
    for name, orientation in (("rgb.heic", 1), ("turned.heic", 6)):
        exif[0x0112] = orientation
        from_pillow(Image.fromarray(PIXELS)).save(stream := io.BytesIO(), quality=80, exif=exif.tobytes())
        made[name] = stream.getvalue()
    return made


def saved_datasets() -> dict[str, dict[str, bytes]]:
    """Rows of a data set of Hugging Face as its library saves them, a stream of Arrow's batches; its .json files."""
    picture, bit = saved(Image.fromarray(PIXELS), "PNG"), saved(Image.fromarray(PIXELS).convert("1"), "PNG")
    mixed = pa.table({
        "a": pa.array([0.5, None, 2.5], pa.float32()), "t": ["x", "yö", None], "e": [True, None, False],
        "d": pa.array([0, None, 86_400_000_001], pa.timestamp("us")), "label": [0, 1, -1],
    })  # fmt: skip
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": picture, "path": None}, {"bytes": None, "path": "https://example.org/a.png"}, None]
    rows += [{"bytes": bit, "path": "b.png"}]
    images = pa.table({"image": pa.array(rows, kind), "label": [0, 1, 0, 1]})
    made = dict[str, bytes]()
    for name, table, packed in (("mixed", mixed, None), ("images", images, None), ("packed", mixed, "lz4")):
        stream, options = io.BytesIO(), pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_stream(stream, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=3)
        made[f"{name}.arrow"] = stream.getvalue()
    info = b'{"features":{"image":{"_type":"Image"},"label":{"names":["x","y"],"_type":"ClassLabel"}},"license":""}'
    state = b'{"_data_files":[{"filename":"data.arrow"}],"_fingerprint":"7","_split":"train"}'
    return {"arrow": made, "saved_info": {"info.json": info, "state.json": state, "splits.json": b'{"splits":["a"]}'}}


def seeds() -> dict[str, dict[str, bytes]]:
    """Target → name → bytes."""
    found = {"image": images(), "map": maps(), "tar": {"two.tar": archive()}, "foreign": foreign(), "cvat": cvat()}
    found |= {"tar_shard": tar_shards(), "parquet_shard": parquet_shards()}
    found["image"] |= heic_images()
    return found | saved_datasets() | arrays() | tables() | settings() | run_files()


if __name__ == "__main__":
    for target, files in seeds().items():
        (HERE.parent / "corpus" / target).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (HERE.parent / "corpus" / target / name).write_bytes(data)
