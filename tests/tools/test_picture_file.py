"""Pictures and tables are written whole or not at all, to names that say their format."""

import pytest

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.files import check_writable, whole_file, write_text
from bppsa_cupy.tools.pictures import picture_file
from bppsa_cupy.tools.pictures.picture_file import check_picture, save_figure


class Figure:
    """Writes half of a picture, and then fails where it is told to."""

    def __init__(self, failure=None):
        self.failure = failure

    def savefig(self, path, format, **options):
        path.write_text(f"{format} {options}", encoding="utf-8")
        if self.failure:
            raise self.failure


@pytest.fixture(autouse=True)
def matplotlib():
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")


@pytest.mark.parametrize("name", ["a.png", "a.PDF", "b.c.svg"])
def test_the_suffix_is_the_format(tmp_path, name):
    save_figure(Figure(), tmp_path / name, dpi=7)
    assert (tmp_path / name).read_text(encoding="utf-8") == f"{name[-3:].lower()} {{'dpi': 7}}"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("failure", [OSError(28, "full"), RuntimeError("bad font"), KeyboardInterrupt()])
def test_a_failure_leaves_the_older_picture(tmp_path, failure):
    path = tmp_path / "a.png"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(BppsaError if isinstance(failure, OSError) else type(failure)):
        save_figure(Figure(failure), path)
    assert path.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.txt", "names no format"),
        ("x", "names no format"),
        ("none/x.png", r"none/x\.png cannot be written"),
    ],
)
def test_other_names_are_refused(tmp_path, name, message):
    for act in (check_picture, lambda path: save_figure(Figure(), path)):
        with pytest.raises(BppsaError, match=message):
            act(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_file, "find_spec", lambda name: None)
    with pytest.raises(BppsaError, match="install the extra 'plot'"):
        check_picture(tmp_path / "a.png")


def test_text_is_whole(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "ä\n")
    assert path.read_bytes() == "ä\n".encode()
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert path.read_bytes() == "ä\n".encode()
    with pytest.raises(BppsaError, match="no regular file"):
        check_writable(tmp_path)
