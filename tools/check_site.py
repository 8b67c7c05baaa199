"""Check that the built site asks for nothing outside of it, and that each of its links leads to a page that is there.

python tools/check_site.py site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
    "link": "href", "object": "data", "use": "href", "image": "href",
}  # fmt: skip
"""Attributes that a browser fetches when it shows a page."""
OUTSIDE = re.compile(r"^(?:https?:)?//", re.IGNORECASE)
STYLE = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)", re.IGNORECASE)


class Page(HTMLParser):
    """What a page fetches, links to, and has as places to link to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one element asks for."""
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if address := values.get(LOADED.get(tag, "")):
            self.fetched.append(address)
        self.fetched += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
        self.fetched += ["".join(found) for found in STYLE.findall(values.get("style", ""))]


def read_page(path: Path) -> Page:
    """A page of the site, parsed."""
    page, text = Page(), path.read_text(encoding="utf-8")
    page.feed(text)
    for style in re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL):
        page.fetched += ["".join(found) for found in STYLE.findall(style)]
    return page


def find_outside(site: Path, pages: dict[Path, Page]) -> list[str]:
    """What pages and style sheets would fetch from elsewhere."""
    found = [(path, address) for path, page in pages.items() for address in page.fetched if OUTSIDE.match(address)]
    for sheet in site.rglob("*.css"):
        found += [(sheet, "".join(parts)) for parts in STYLE.findall(sheet.read_text(encoding="utf-8"))]
    return [f"{path.relative_to(site)} fetches {address}" for path, address in found]


def find_broken(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Links and files of pages that lead nowhere in the site."""
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in [*page.links, *page.fetched]:
            name, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or OUTSIDE.match(link):
                continue
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            missing = anchor and target in pages and unquote(anchor) not in pages[target].ids
            if not target.is_file() or missing:
                broken.append(f"{path.relative_to(site)} links to {link}")
    return broken


def check(site: Path) -> list[str]:
    """Everything that is wrong with a built site, a sentence each."""
    pages = {path.resolve(): read_page(path) for path in sorted(site.resolve().rglob("*.html"))}
    if not pages:
        return [f"{site} has no pages: run make docs"]
    return find_outside(site.resolve(), pages) + find_broken(site.resolve(), pages)


if __name__ == "__main__":
    faults = check(Path(sys.argv[1]))
    print("\n".join(faults) or "the site fetches nothing from outside, and every link leads to a page")
    sys.exit(bool(faults))
