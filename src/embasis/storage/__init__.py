"""The only package that writes files: atomic, verified, locked; no pickle is read or written.

A run folder holds `lock` (flock; names its owner's pid), `HEAD` (the number of the newest finished generation) and
`generations/000007/` with tensors.safetensors, facts.json and manifest.json (size and sha256 of both). HEAD and
manifest.json are sealed: they hold the hash of their own content. `.embasis-tmp-…` is a write under way, always
beside its target; the next owner of the lock removes left-overs.
"""

from embasis.storage.cache import FeatureCache, cache_folder
from embasis.storage.files import Disk, read_json, read_jsonl, write_output
from embasis.storage.folder import RunFolder
from embasis.storage.generations import SCHEMA, Generation, read_newest
from embasis.storage.tables import neutral_cell, read_table, restore_cell, table_bytes

__all__ = [
    "SCHEMA",
    "Disk",
    "FeatureCache",
    "Generation",
    "RunFolder",
    "cache_folder",
    "neutral_cell",
    "read_json",
    "read_jsonl",
    "read_newest",
    "read_table",
    "restore_cell",
    "table_bytes",
    "write_output",
]
