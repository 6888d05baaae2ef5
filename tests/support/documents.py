"""Code blocks and commands of documents."""

import re
import shlex
from importlib import import_module


def blocks(text, language):
    """The fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run_commands(text):
    """Every line of the shell blocks of a document, by the functions that its commands call."""
    for line in "".join(blocks(text, "sh")).splitlines():
        name, *arguments = shlex.split(line, comments=True)
        tool = import_module(f"bppsa_cupy.tools.{name.removeprefix('bppsa-')}")
        assert tool.main(arguments) == 0, line
