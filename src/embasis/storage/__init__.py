"""The only package that writes files: atomic, verified, locked; no pickle is read or written.

A run folder holds `lock` (flock; with the pid of its process), `HEAD` (the number of the newest finished generation)
and `generations/000007/` with tensors.safetensors, facts.json and manifest.json (size and sha256 of both). HEAD and
manifest.json are sealed: they hold the hash of their own content. `.embasis-tmp-…` is a write under way, always
beside its target; the next process with the lock removes left-overs. Beside them lie the label distributions of rounds
on pictures, `sites/round-003/` (see label_store.py), and the maps for people, `labels/round-003/` (see
label_map_folder.py). What a run hands out is sealed: manifest.json has the size and sha256 of each such file.

Here are the parts that need neither torch nor numpy to be imported; picture_formats.py, label_store.py,
label_map_folder.py, class_folder.py and feature_cache.py are imported by name.
"""

from embasis.storage.atomic import (
    Disk,
    encode_table,
    escape_formula,
    is_same,
    read_json,
    read_jsonl,
    read_stored_table,
    refuse_lost_link,
    require_apart,
    unescape_formula,
    write_output,
)
from embasis.storage.checkpoints import Generation, SealedFiles, read_generation, read_newest, read_sealed
from embasis.storage.run_folder import RunFolder

__all__ = [
    "Disk",
    "Generation",
    "RunFolder",
    "SealedFiles",
    "encode_table",
    "escape_formula",
    "is_same",
    "read_generation",
    "read_json",
    "read_jsonl",
    "read_newest",
    "read_sealed",
    "read_stored_table",
    "refuse_lost_link",
    "require_apart",
    "unescape_formula",
    "write_output",
]
