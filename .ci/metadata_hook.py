"""What the package index shows: the README, whose links lead to the repository that the package was built from.

The repository is that of SHAPLEYMIX_REPOSITORY, or else git's `origin`; a source archive remembers it. Without one the
README's pages and pictures are named but not linked, since a package index has no files to link to.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def find_repository(root: Path) -> str:
    """The address of the repository on the web; empty where none is known."""
    archived = root / "PKG-INFO"
    if (known := os.environ.get("SHAPLEYMIX_REPOSITORY")) is not None:
        return known.rstrip("/")
    if archived.exists():
        found = re.search(r"^Project-URL: Repository, (\S+)$", archived.read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else ""
    words = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        origin = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    place = re.fullmatch(r"(?:https://|ssh://)?(?:[^/@]*@)?([^/:]+)(?::\d+(?=/))?[:/](.+?)(?:\.git)?/?", origin)
    remote = origin.startswith(("https://", "ssh://")) or "@" in origin.partition("/")[0]
    return f"https://{place[1]}/{place[2]}" if place and remote else ""  # without the user, who may be a token


def link_readme(text: str, repository: str, version: str) -> str:
    """The README with absolute links to the files of a version; without a repository, with the names alone."""

    def linked(found: re.Match[str]) -> str:
        picture, name, path = found.groups()
        if not repository:
            return "" if picture else name
        return f"{picture}[{name}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return _LINK.sub(linked, text)


class RepositoryLinks(MetadataHookInterface):
    """Sets the fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic."""
        root, version = Path(self.root), metadata["version"]
        repository = find_repository(root)
        text = link_readme((root / "README.md").read_text(encoding="utf-8"), repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {"Repository": "", "Documentation": f"/blob/v{version}/cli/docs/README.md", "Issues": "/issues"}
        pages |= {"Changelog": f"/blob/v{version}/CHANGELOG.md"}
        metadata["urls"] = {name: repository + page for name, page in pages.items()} if repository else {}
