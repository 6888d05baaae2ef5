"""Messages of errors: of a bounded length, whatever a file or an argument holds; causes in one line."""

import pickle
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy.data.clips import Source
from bppsa_cupy.errors import LONGEST, LONGEST_REASON


@given(st.text(max_size=30), st.integers(0, 10_000), st.text(max_size=30))
def test_a_message_keeps_beginning_and_end_and_is_bounded(begin, middle, end):
    text = begin + "[" * middle + end
    for error in (bp.BppsaError(text), bp.PlanError(text), bp.ShapeError(text)):
        said = str(error)
        assert len(said) <= LONGEST
        assert said == text or (said.startswith(begin) and said.endswith(end) and f"({len(text)} ch" in said)


def test_errors_are_copied_whole():
    for error in (bp.DataError("x" * 5000), bp.BppsaError()):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)


def test_an_archive_whose_entry_has_another_name_is_refused_shortly(tmp_path):
    """Python's message holds all that lies where the name should."""
    path = tmp_path / "clips.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cat/1.wav", bytes([255]) * 5000)
    content = bytearray(path.read_bytes())
    content[26:28] = (2**12).to_bytes(2, "little")  # the length of the name before the entry
    path.write_bytes(content)
    with pytest.raises(
        bp.DataError, match=r"clips\.zip: cat/1\.wav cannot be read .File name in dir"
    ) as caught:
        Source(path).read("cat/1.wav")
    assert len(str(caught.value)) < len(str(path)) + 2 * LONGEST_REASON
