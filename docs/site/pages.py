"""What MkDocs needs beside docs/: pages from the root's files and from notebooks, the package as a tree; and
a look at what was built.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from notebooks import page_of

ROOT = Path(__file__).parents[2]
#: Files of the root that are pages of the site.
PAGES = {
    "README.md": "index.md",
    **{f"{name.upper()}.md": f"{name}.md" for name in ("changelog", "contributing", "security")},
}
#: The front page has no pages beside it to list.
HOME = "---\nhide: [navigation]\n---\n"
#: Folders that the package's own folder does not show.
MAPPED = ("jacobians", "raw_kernels", "tools")
TREE = ROOT / "out" / "package" / "bppsa_cupy"


def on_startup(**kwargs: Any) -> None:
    """Lay the package out as it is imported, where the reference is read from: a path that is not there when
    mkdocstrings is set up is forgotten."""
    shutil.rmtree(TREE, ignore_errors=True)
    for name in ("bppsa_cupy", *MAPPED):
        target = TREE if name == "bppsa_cupy" else TREE / name
        shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.cu", "*.cuh"))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are not in docs/ as they are."""
    for name, place in PAGES.items():
        text = linked((ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, place, content=HOME * (place == "index.md") + text))
    for source in sorted((ROOT / "docs" / "notebooks").glob("*.py")):
        text, pictures = page_of(source)
        files.append(File.generated(config, f"notebooks/{source.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))


def linked(text: str) -> str:
    """A page of the root with its links as they are from inside docs/."""
    for name, place in PAGES.items():
        text = text.replace(f"]({name})", f"]({place})")
    return text.replace("](docs/", "](")


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Links to a notebook's source lead to its page."""
    return re.sub(r"\]\(((?:\.\./)?notebooks/\w+)\.py\)", r"](\1.md)", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError where a page loads anything from elsewhere."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?:[^\s\">]+)", text)
        loaded += [
            tag
            for tag in re.findall(r"<link\b[^>]*https?:[^>]*>", text)
            if "stylesheet" in tag or "preconnect" in tag
        ]
        if loaded:
            raise PluginError(f"{page.name} loads {loaded[0]}: a page takes nothing from elsewhere")
