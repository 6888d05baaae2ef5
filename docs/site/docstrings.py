"""Docstrings in Markdown: the house style has names and what they are in two columns.

    gradient  v(1): (d,) or, for a batch, (d, B)
    method    "linear", "blelloch" or "hybrid"

becomes a list of the names, and what Markdown would take for its own becomes itself.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

#: A name, or several, and what it is, two blanks or more apart.
ENTRY = re.compile(r"(?P<name>[\w*][\w*]*(?:, [\w*]+)*) {2,}(?P<text>\S.*)")


class HouseStyle(griffe.Extension):
    """Turns docstrings of the house style, and leaves numpydoc, as their objects are loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and not re.search(r"^ *-{4,}$", obj.docstring.value, re.MULTILINE):
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """A docstring of the house style as Markdown. Indented lines are code, but for those below a name."""
    lines: list[str] = []
    inside = False
    for line in docstring.splitlines():
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            lines += [""] * (not inside)
            lines.append(f"- **`{entry['name']}`** {escaped(entry['text'])}")
            inside = True
        elif inside and line.startswith("  "):
            lines.append("    " + escaped(line.strip()))
        else:
            lines += [""] * (inside and bool(line))
            lines.append(line if line.startswith("    ") else escaped(line))
            inside = False
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text in which nothing but `code` is Markdown."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts)
