"""Pages that docs/ does not hold: the files of the root, and a page per command; the package as a tree."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
#: Files of the root that are pages of the site.
PAGES = {
    "README.md": "index.md",
    **{f"{name.upper()}.md": f"{name}.md" for name in ("changelog", "contributing", "security")},
}
COMMANDS = ("plan", "train", "jacobians", "data", "bench", "reproduce")
#: The front page has no pages beside it to list.
HOME = "---\nhide: [navigation]\n---\n"
#: Folders that the package's own folder does not show.
MAPPED = ("jacobians", "raw_kernels", "tools")
TREE = ROOT / "out" / "package" / "bppsa_cupy"


def on_startup(**kwargs: Any) -> None:
    """Lay the package out as it is imported, for mkdocstrings, which reads paths when it is set up."""
    shutil.rmtree(TREE, ignore_errors=True)
    for name in ("bppsa_cupy", *MAPPED):
        target = TREE if name == "bppsa_cupy" else TREE / name
        shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.cu", "*.cuh"))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are not in docs/ as they are."""
    for name, place in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace('"docs/', '"')
        for other, page in PAGES.items():
            text = text.replace(f"]({other})", f"]({page})")
        text = re.sub(r"\[([^]]*)\]\(CITATION\.cff\)", r"\1", text)
        files.append(File.generated(config, place, content=HOME * (place == "index.md") + text))
    for name in COMMANDS:
        content = command_page(import_module(f"bppsa_cupy.tools.{name}").parser())
        files.append(File.generated(config, f"reference/commands/bppsa-{name}.md", content=content))


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Links to files of the root lead to their pages."""
    return re.sub(r"\]\(((?:\.\./)+)\.\./([A-Z]+\.md)", lambda m: f"]({m[1]}{PAGES[m[2]]}", markdown)


def command_page(parser: argparse.ArgumentParser) -> str:
    """The reference page of a command: each subcommand with its usage, options and example."""
    parts = [f"# {parser.prog}\n", f"{parser.description}\n"]
    commands = [(parser, 0), *((command, 1) for command in subcommands(parser))]
    for command, depth in commands:
        if depth:
            parts += [f"## {command.prog}\n", f"{command.description}\n"]
        if depth or len(commands) == 1:
            parts.append("".join(tables(command)))
        if command.epilog:
            example = "\n".join(line.strip() for line in command.epilog.splitlines()[1:])
            parts.append(f"Example:\n\n```console\n{example}\n```\n")
    return "\n".join(parts)


def subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the subcommands, those inside of others included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from subcommands(command)


def tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A table of each group of arguments."""
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        shown = [a for a in group._group_actions if a.dest not in (argparse.SUPPRESS, "help", "version")]
        if shown:
            yield f"| {(group.title or 'options').capitalize()} | |\n|---|---|\n"
        for action in shown:
            argument = formatter._format_action_invocation(action)
            text = formatter._expand_help(action) if action.help else ""
            yield f"| `{argument}` | {cell(text)} |\n"
        yield "\n" * bool(shown)


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ").strip()


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
            raise PluginError(f"{page.name} loads {loaded[0]}: pages must not load anything from other sites")
