"""`predict` does not decode an image whose features a fit has kept, and its labels are the same to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_tables import embasis
from embasis import ImageModel, fit_images
from embasis.api.models import Labels
from embasis.data import reader
from embasis.errors import EmbasisWarning
from image_runs import PLANS, picture, sides
from image_trees import plant

pytestmark = pytest.mark.usefixtures("fast_runs")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all images that are decoded in this process."""
    met, usual = list[str](), reader.load_one

    def load_one(load: Any, request: Any) -> Any:
        met.append(str(request["path"]))
        return usual(load, request)

    monkeypatch.setattr(reader, "load_one", load_one)
    return met


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    sides(tmp_path)
    return plant(tmp_path, {f"new/{number}.png": picture(number % 3, 60 + number, 40, side=50) for number in range(5)})


def fitted(home: Path, depth: str = "frozen", **more: Any) -> ImageModel:
    words: dict[str, Any] = {"backbone": "timm:test_efficientnet", "network.pretrained": False, "network.size": 32}
    words |= {f"plan.{name}": value for name, value in PLANS[depth].items()}
    return fit_images(home / "photos", home / "paintings", depth=depth, workers=0, **{**words, **more})


def same(left: Labels, right: Labels) -> bool:
    return str(left.columns()) == str(right.columns())  # NaN is not NaN, its name is


@pytest.mark.parametrize("depth", ["frozen", "partial"])
def test_images_of_the_fit_are_not_decoded_again_and_have_the_same_labels(
    home: Path, decoded: list[str], depth: str
) -> None:
    model = fitted(home, depth, output=home / "run")
    assert len(decoded) == 36
    decoded.clear()
    found = model.predict(home / "paintings")
    assert decoded == []
    loaded = ImageModel.load(home / "run")
    assert same(loaded.predict(home / "paintings"), found)
    assert decoded == []
    (home / "cache").rename(home / "elsewhere")
    assert same(ImageModel.load(home / "run").predict(home / "paintings"), found)
    assert len(decoded) == 18


def test_only_images_that_are_new_are_decoded_and_nothing_is_added_to_the_cache(home: Path, decoded: list[str]) -> None:
    fitted(home, output=home / "run")
    kept = sorted((home / "cache").rglob("*.shard"))
    mixed = [home / "new" / "1.png", *sorted((home / "paintings").glob("*.png"))[:3], home / "new" / "0.png"]
    decoded.clear()
    found = ImageModel.load(home / "run").predict(mixed)
    assert sorted(decoded) == [str(home / "new" / "0.png"), str(home / "new" / "1.png")]
    assert found.names == [str(path) for path in mixed]
    assert sorted((home / "cache").rglob("*.shard")) == kept
    one = [ImageModel.load(home / "run").predict([path]).probability[0] for path in mixed]
    assert found.probability.tolist() == one


def test_rows_that_are_read_and_kept_ones_keep_their_order_over_chunks(
    home: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted(home)
    garbage = home / "new" / "garbage.png"
    garbage.write_bytes(picture(0, 1)[:900] + bytes(60) + picture(0, 1)[960:])
    files = sorted((home / "paintings").rglob("*.png"))
    mixed = [files[0], *sorted((home / "new").glob("*.png")), *files[1:4]]
    whole = model.predict(mixed)
    monkeypatch.setattr("embasis.inputs.image_inputs.CHUNK_ROWS", 2)
    assert same(model.predict(mixed), whole)
    assert whole.reasons.keys() == {str(garbage)}


def test_the_command_does_not_decode_them_either(home: Path, decoded: list[str]) -> None:
    model = fitted(home, output=home / "run")
    decoded.clear()
    done = embasis("predict", home / "run", home / "paintings", "-o", home / "labels.csv", "--workers", 0)
    assert done.exit_code == 0, done.output
    assert decoded == []
    rows = (home / "labels.csv").read_text(encoding="utf-8").splitlines()
    assert [float(row.split(",")[2]) for row in rows[1:]] == model.predict(home / "paintings").probability.tolist()


def test_a_damaged_shard_is_said_and_its_images_are_decoded(home: Path, decoded: list[str]) -> None:
    expected = fitted(home, output=home / "run").predict(home / "paintings")
    (shard,) = (home / "cache").rglob("*.shard")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    decoded.clear()
    model = ImageModel.load(home / "run")
    with pytest.warns(EmbasisWarning, match=r"\.shard: sha256 differs; its images are read again$"):
        found = model.predict(home / "paintings")
    assert same(found, expected)
    assert len(decoded) == 18


def test_a_user_without_a_home_can_predict(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted(home, output=home / "run").predict(home / "new")
    for name in ("EMBASIS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("embasis.storage.feature_cache.os.path.expanduser", lambda path: path)
    assert same(ImageModel.load(home / "run").predict(home / "new"), expected)


def test_an_image_model_says_what_it_is_in_a_line_and_has_probabilities_of_all_classes(home: Path) -> None:
    model = fitted(home, output=home / "run")
    run = str(home / "run")
    run = repr(run) if len(run) <= 80 else f"{run[:80]!r}… ({len(run)} characters)"
    assert repr(model) == f"ImageModel(3 classes: 'Möwe', 'amsel', 'buntes Tuch'; em_basis, round 1, run {run})"
    assert repr(model.predict(home / "new")).startswith("Labels(5 rows, ")
    (home / "new" / "5.png").write_bytes(b"nothing")
    given = [home / "new" / f"{number}.png" for number in (2, 5, 0)]
    labels, found = model.predict(given), model.predict_proba(given)
    assert repr(labels).endswith(" trusted, 1 that cannot be read)")
    assert found.shape == (3, 3)
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[[0, 2]].sum(1), 1, atol=1e-12)
    assert [model.classes[found[row].argmax()] for row in (0, 2)] == [labels.label[0], labels.label[2]]
    np.testing.assert_allclose(found[[0, 2]].max(1), labels.probability[[0, 2]], atol=1e-6)
