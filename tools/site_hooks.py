"""What mkdocs must know of this repository: pages that lie outside of docs/, and links that leave the site.

mkdocs calls these functions by their names. Files such as CONTRIBUTING.md and benchmarks/README.md become pages at the
path that they have in the repository; pages of docs/ lie at the top of the site. Links are written for readers of the
repository, so they are translated here. A link to a file that is no page (source code, say) becomes its text.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md", "benchmarks/notes/*.md")
"""Pages of the site that do not lie in docs/."""
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```[ ]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside of docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Translate the links of a page from places in the repository to places in the site."""
    here = page.file.src_uri
    home = here if is_outside(here) else f"docs/{here}"
    kept: list[str] = []

    def hide(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\x00{len(kept) - 1}\x00"

    def translate(found: re.Match[str]) -> str:
        text, link = found[1], found[2]
        name, mark, anchor = link.partition("#")
        if not name or "://" in link or link.startswith("mailto:"):
            return found[0]
        target = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(home), name)))
        if files.get_file_from_path(target) is None:
            return text if exists_in_repository(home, name) else found[0]
        return f"[{text}]({os.path.relpath(target, posixpath.dirname(here) or '.')}{mark}{anchor})"

    text = LINK.sub(translate, CODE.sub(hide, markdown))
    while "\x00" in text:
        text = re.sub("\x00(\\d+)\x00", lambda found: kept[int(found[1])], text)
    return text


def is_outside(name: str) -> bool:
    """Whether a page of the site lies outside of docs/."""
    return any(Path(name).match(pattern) for pattern in OUTSIDE) and (ROOT / name).is_file()


def site_path(name: str) -> str:
    """Where a file of the repository lies in the site; folders are their index."""
    if (ROOT / name).is_dir():
        name = f"{name}/README.md"
    return "index.md" if name == "README.md" else name.removeprefix("docs/")


def exists_in_repository(home: str, name: str) -> bool:
    """Whether a link of a page leads to a file or folder of the repository."""
    return (ROOT / posixpath.dirname(home) / name).exists()
