"""Deliberate breakages of what guards inputs and resources, each with the tests that must fail then.

    python tests/torture/mutants_inputs.py [NUMBER ...]

Each is made in a copy of the code, so nothing changes here. One line for each; exit code 1 if a breakage goes unseen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """What is broken, where, how, and the tests that see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


DATA, IMAGE = "data/", "data/images/"
REVIEW = "reliability/test_review_hostile.py::"
MUTANTS = (
    Mutant(
        "an answer to a map that was shown before is taken", "runs/review_maps.py",
        'require(answer.get("version") == describe_version(stored), rule, ConfigError)', "assert rule",
        REVIEW + "test_a_map_that_was_saved_in_another_tab_is_not_overwritten_by_numbers_of_its_old_parts",
    ),
    Mutant(
        "a decision of another reviewer is overwritten", "storage/correction_files.py",
        "            require(now == self._known, rule, ResourceError)\n", "            assert rule\n",
        REVIEW + "test_two_reviews_of_one_file_lose_no_decision",
    ),
    Mutant(
        "the folder of corrections is not locked", "storage/correction_files.py",
        "        with atomic.lock_folder(self.path.parent):\n", "        if True:\n",
        REVIEW + "test_two_reviews_of_one_file_lose_no_decision",
    ),
    Mutant(
        "any number of clients may wait at the page", "runs/review_server.py",
        "if not self._free.acquire(blocking=False):", "if not self._free.acquire(timeout=0) and False:",
        REVIEW + "test_connections_beyond_a_limit_are_closed_and_the_page_goes_on_afterwards",
    ),
    Mutant(
        "a name server is asked who 127.0.0.1 is", "runs/review_server.py",
        "socketserver.TCPServer.server_bind(self)", "super().server_bind()",
        REVIEW + "test_no_name_server_is_asked_what_this_machine_is_called",
    ),
    Mutant(
        "archives of maps may be packed in any way", DATA + "segmentation/cvat.py",
        "require(entry.compress_type in ZIP_METHODS, packed)", "assert packed",
        REVIEW + "test_bombs_doubles_and_strange_packing_are_refused",
    ),
    Mutant(
        "a map in an archive may have any size", DATA + "segmentation/cvat.py",
        "    require(entry.file_size <= most, too_large)\n", "    assert too_large\n",
        REVIEW + "test_bombs_doubles_and_strange_packing_are_refused",
    ),
    Mutant(
        "texts that are not UTF-8 are not caught", DATA + "formats.py",
        "    except UnicodeDecodeError:\n", "    except ZeroDivisionError:\n",
        "reliability/test_data_hostile.py::test_a_text_that_is_not_utf8_is_refused",
    ),
    Mutant(
        "bytes that are not UTF-8 are replaced", DATA + "class_labels.py",
        "value.decode() if", "value.decode('utf-8', 'replace') if",
        "unit/data/test_refused_tables.py::test_two_labels_of_bytes_that_are_not_utf8_do_not_become_one_class",
    ),
    Mutant(
        "a line may have any length", DATA + "formats.py",
        "self.stream.readline(LONGEST_RECORD + 1)", "self.stream.readline()",
        "reliability/test_memory.py::test_a_csv_file_without_a_line_end_takes_no_memory",
    ),
    Mutant(
        "columns with an offset are rounded before they are centred", DATA + "standardise.py",
        "kept = wide[fine.columns]", "kept = wide[fine.columns] & False",
        "integration/test_offsets.py::test_an_offset_changes_no_label_of_the_estimator",
    ),
    Mutant(
        "predict rounds columns with an offset", "runs/model.py",
        "return self.standardiser is not None and", "return False and",
        "integration/test_offsets.py::test_an_offset_changes_no_label_of_fit_and_predict",
    ),
    Mutant(
        "texts are read row by row", DATA + "formats.py", "read_dictionary=texts", "read_dictionary=[]",
        "reliability/test_data_hostile.py::test_one_long_label_in_many_rows_is_in_memory_once",
    ),
    Mutant(
        "a number of 5000 digits is not caught", "config.py",
        "except (ValueError, RecursionError):\n        plain", "except tomllib.TOMLDecodeError:\n        plain",
        "reliability/test_data_hostile.py::test_settings_of_megabytes_and_numbers_of_thousands_of_digits_are_refused",
    ),
    Mutant(
        "a pipe is waited for", DATA + "formats.py", "os.O_RDONLY | os.O_NONBLOCK", "os.O_RDONLY",
        "reliability/test_data_hostile.py::test_a_pipe_as_settings_or_classes_is_refused_and_never_waited_for",
    ),
    Mutant(
        "the EXIF mark is searched for, not read", IMAGE + "pixels.py",
        "    block = _jpeg_exif(data)\n",
        "    block = data[max(data.find(b'Exif'), 0) :] if b'Exif' in data[:24] else _jpeg_exif(data)\n",
        "unit/data/images/test_reference_pixels.py",
    ),
    Mutant(
        "a grey row keeps its class", IMAGE + "samples.py", "labels[[*rejected]] = -1", "labels = labels",
        "reliability/test_dirty.py::test_files_that_vanish_while_training_are_written_down_and_have_no_class",
    ),
    Mutant(
        "files that vanish have no budget", "runs/run.py",
        "            self._require_few_lost_files()\n", "",
        "reliability/test_dirty.py::test_more_vanished_files_than_the_budget_allows_end_the_run_and_what_is_saved_is_kept",
    ),
    Mutant(
        "rows that are lost while training still count as used", DATA + "problem.py",
        "rows = len(side) - lost", "rows = len(side)",
        "reliability/test_dirty.py::test_files_that_vanish_while_training_are_written_down_and_have_no_class",
    ),
    Mutant(
        "torch's words for no memory are unknown", "resources.py", "can(no|')t allocate memory|", "",
        "unit/ground/test_resources.py",
    ),
    Mutant(
        "memory that is short is a fault of the file", DATA + "formats.py",
        "    except ResourceError:  # is an OSError, too, and no fault of the file\n        raise\n", "",
        "unit/ground/test_resources.py::test_a_table_that_does_not_fit_is_refused_from_its_header",
    ),
    Mutant(
        "only the first file of the same bytes is named", IMAGE + "folders.py",
        "for file in side.scan.files if file.digest in broken", "for file in files if file.digest in broken",
        "reliability/test_dirty.py::test_check_lists_every_damaged_file_of_twenty_kinds_with_its_reason",
    ),
    Mutant(
        "files are not counted when they are met", IMAGE + "files.py",
        "            self.seen += 1\n            self.examine(", "            self.examine(",
        "reliability/test_dirty.py::test_an_account_that_is_not_even_is_an_error_in_words",
    ),
    Mutant(
        "checksums of PNG files are not looked at", IMAGE + "pixels.py", "        check_png(data)\n", "        pass\n",
        "reliability/test_dirty.py::test_check_lists_every_damaged_file_of_twenty_kinds_with_its_reason",
    ),
    Mutant(
        "a link that replaces a file is followed", IMAGE + "files.py", "os.O_NOFOLLOW | ", "",
        "unit/data/images/test_scan.py::test_a_file_that_becomes_a_link_after_the_scan_is_not_read",
    ),
    Mutant(
        "special files are opened", IMAGE + "scan.py", "elif not entry.is_file(follow_symlinks=False):", "elif False:",
        "reliability/test_dirty.py::test_check_lists_every_damaged_file_of_twenty_kinds_with_its_reason",
    ),
    Mutant(
        "links are followed by default", IMAGE + "scan.py",
        "def scan_folder(root: PathLike, *, follow_links: bool = False)",
        "def scan_folder(root: PathLike, *, follow_links: bool = True)",
        "reliability/test_dirty.py::test_a_link_that_is_followed_is_noticed",
    ),
    Mutant(
        "any number of workers may die", "data/reader.py",
        "if len(job.deaths) > 1:", "if len(job.deaths) > 99:",
        "integration/test_worker_processes.py::test_the_second_worker_lost_in_one_pass_ends_it",
    ),
    Mutant(
        "the budget is not checked", IMAGE + "folders.py", "        len(rejected) <= most,\n", "        True,\n",
        "unit/data/images/test_folders.py::test_more_than_the_budget_is_refused_with_what_would_do",
    ),
    Mutant(
        "a packed matrix may unfold to anything", DATA + "datasets/domain_sets.py",
        "if inflater.unconsumed_tail:", "if False:",
        "unit/data/datasets/test_domain_sets.py::test_a_matrix_that_unpacks_to_more_than_is_read_is_refused",
    ),
    Mutant(
        "free disk is not checked before images are read", "inputs/image_inputs.py",
        "self.require_cache_room(total - done)", "pass",
        "unit/ground/test_resources.py::test_the_commands_ask_for_disk_before_long_work",
    ),
    Mutant(
        "free disk is not checked before training", "cli/fit.py",
        "require_run_room(run.prepare(), path)", "run.prepare()",
        "unit/ground/test_resources.py::test_the_commands_ask_for_disk_before_long_work",
    ),
    Mutant(
        "transparent pixels lie over black", IMAGE + "pixels.py", "255 * (255 - alpha)", "0 * (255 - alpha)",
        "unit/data/images/test_reference_pixels.py",
    ),
)  # fmt: skip


def is_seen(mutant: Mutant) -> bool:
    """Whether a test fails when the code is broken so."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for part in ("src", "tests", "benchmarks"):
            shutil.copytree(ROOT / part, place / part)
        shutil.copy(ROOT / "pyproject.toml", place)
        path = place / "src" / "embasis" / mutant.file
        text = path.read_text()
        assert mutant.old in text, f"{mutant.what}: the code that is to be broken is not there"
        path.write_text(text.replace(mutant.old, mutant.new))
        test, *options = mutant.tests.split(" ")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "60"]
        environment = {**os.environ, "PYTHONPATH": str(place / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*command, f"tests/{test}", *options], cwd=place, env=environment, capture_output=True)
    return done.returncode == 1  # a test failed; tests that cannot even be collected have seen nothing


def main(wanted: list[str]) -> int:
    """The breakages with these numbers, or all of them."""
    missed = 0
    for number, mutant in enumerate(MUTANTS, 1):
        if not wanted or str(number) in wanted:
            seen = is_seen(mutant)
            missed += not seen
            print(f"{number:2} {'seen' if seen else 'MISSED'}: {mutant.what} ({mutant.tests})", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
