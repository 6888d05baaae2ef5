"""The sizes of patterns in a plan file, read without the patterns."""

import h5py
import pytest

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.file.outline import read_pattern_outlines
from bppsa_cupy.plan.file.products import write_patterns


def outlined(path, pattern, **attributes):
    """What is read of a pattern that was written, with these attributes changed."""
    with h5py.File(path / "patterns.h5", "w") as file:
        write_patterns(file, [pattern])
        group = file["patterns"][pattern.digest]
        group.attrs.update(attributes)
        return read_pattern_outlines([(pattern.digest, group)])[pattern.digest]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_pattern_has_no_sparsity(tmp_path, shape):
    outline = outlined(tmp_path, Pattern.dense(*shape))
    assert (outline.shape, outline.nnz, outline.sparsity) == (shape, 0, 0.0)


def test_the_sparsity_is_the_patterns(tmp_path):
    assert outlined(tmp_path, Pattern.diagonal(4)).sparsity == Pattern.diagonal(4).sparsity == 0.75


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_a_side_below_0_is_refused(tmp_path, side):
    with pytest.raises(PlanError, match="row pointers"):
        outlined(tmp_path, Pattern.diagonal(4), **{side: -1})
