"""A feature cache that cannot be written to is found before images are read, and the sentence says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli_tables import refused
from embasis.errors import ResourceError
from embasis.storage.feature_cache import FeatureCache, cache_folder
from forked import Zygote
from image_runs import WORDS, begun, counting, settings, sides

CURE = "images.cache=DIR or EMBASIS_CACHE names another folder for features"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sides(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("depth", ["auto", "frozen", "partial"])
def test_a_file_in_the_place_of_the_cache_is_found_before_the_scan(
    depth: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "cache"
    place.write_text("not a folder")

    def scan(*_: object, **__: object) -> None:
        raise AssertionError("images are looked for")

    monkeypatch.setattr("embasis.inputs.load.load_images", scan)
    words = ["fit", made / "photos", made / "paintings", "-o", tmp_path / "run", *WORDS, f"images.depth={depth}"]
    refused(5, f"cannot write {place}: {place}: Not a directory; {CURE}", *words, f"images.cache={place}")
    refused(5, f"cannot write {place}/x: {place}: Not a directory; {CURE}", *words, f"images.cache={place}/x")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("depth", ["frozen", "partial"])
def test_a_cache_with_features_of_others_is_tried_before_an_image_is_decoded(
    depth: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, front = begun(made, settings(tmp_path / "cache", depth))
    assert front.cache is not None
    front.cache.path.parent.mkdir(parents=True)
    front.cache.path.write_text("in the way")
    seen = counting(monkeypatch)
    with pytest.raises(ResourceError) as caught:
        next(front.cache_features(problem))
    assert str(caught.value) == f"cannot write {front.cache.path}: Not a directory; {CURE}"
    assert seen == []


def test_a_cache_that_has_everything_need_not_be_writable(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, front = begun(made, settings(tmp_path / "cache"))
    assert front.cache is not None
    list(front.cache_features(problem))
    monkeypatch.setattr(FeatureCache, "require_writable", lambda cache: pytest.fail("nothing is to be written"))
    assert list(front.cache_features(problem)) == [(36, 36)]


def test_trying_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, "key")
    cache.require_writable()
    assert list(cache.path.iterdir()) == []


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "EMBASIS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(ResourceError) as caught:
        cache_folder()
    assert (
        str(caught.value)
        == "there is no folder for features: this user has no home; images.cache=DIR or EMBASIS_CACHE names one"
    )
    assert cache_folder("there") == Path("there")


AS_NOBODY = """
import os
from embasis.cli import main
os.environ.pop("EMBASIS_CACHE", None)
os.environ.pop("XDG_CACHE_HOME", None)
os.environ["HOME"] = words.pop()
if os.getuid() == 0:  # root may write everywhere
    os.setgid(65534)
    os.setuid(65534)
main(words, prog_name="embasis")
"""


def test_a_read_only_home_is_one_sentence_and_code_5(open_folder: Path, zygote: Zygote) -> None:
    sides(open_folder)
    home = open_folder / "home"
    home.mkdir()
    home.chmod(0o555)
    words = ["fit", open_folder / "photos", open_folder / "paintings", "-o", open_folder / "run", *WORDS, home]
    child = zygote.run(open_folder / "log", *words, code=AS_NOBODY)
    assert child.code == 5, child.stderr
    assert child.stderr == f"embasis: cannot write {home}/.cache/embasis: {home}: Permission denied; {CURE}\n"
    assert child.stdout == "", "no image was read"
    assert os.listdir(home) == []
