"""Notebooks as pages: the source is run by Jupyter, and what it prints and draws stands behind each cell."""

from __future__ import annotations

from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

#: Said on top of a notebook's page, behind its heading.
NOTE = "\n\n*This page is a notebook: [{name}.py]({name}.py). Jupyter opens it with jupytext.*\n"


def page_of(source: Path) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and the pictures it shows by file name. Raises CellExecutionError."""
    notebook = jupytext.read(source)
    arguments = ["--InlineBackend.figure_formats=svg", "--IPKernelApp.log_level=ERROR"]
    NotebookClient(notebook, timeout=600, kernel_name="python3", extra_arguments=arguments).execute()
    exporter = MarkdownExporter()
    resources = {"unique_key": source.stem, "output_files_dir": "."}
    text, made = exporter.from_notebook_node(notebook, resources=resources)
    heading, _, rest = text.lstrip().partition("\n")
    note = NOTE.format(name=source.stem)
    return heading + note + rest, {Path(name).name: content for name, content in made["outputs"].items()}
