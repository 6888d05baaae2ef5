"""The code in README.md runs, and the documents' links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()


def blocks(text, language):
    """The fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = blocks(README, "python")
    names = {}
    exec(first, names)
    assert re.match(r"\d\.\d+ \('blelloch: \d+ mv and \d+ mm in \d+ levels',\)", capsys.readouterr().out)
    names["bp"].save_jacobians("jacobians.h5", names["net"])
    exec(second, names)
    assert capsys.readouterr().out == "Conv2d (3072, 4704) 352800\n"
    assert names["matrix"].shape == (3072, 4704)
