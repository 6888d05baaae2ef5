"""What the passes over time take of a block's shared memory is held to what the device has."""

import numpy as np
import pytest

from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import WalkSize, ways
from bppsa_cupy.timescan.serial import check_shared


class Limited(HostDevice):
    """A host whose blocks have so many bytes."""

    def __init__(self, shared_bytes):
        super().__init__()
        self._bytes = shared_bytes

    @property
    def shared_bytes(self):
        return self._bytes


@pytest.mark.parametrize("cell", ["rnn_tanh", "lstm"])
@pytest.mark.parametrize("steps", [0, 7])
def test_a_block_that_takes_more_is_refused_by_the_pass_that_does(cell, steps, monkeypatch):
    """The forward pass of an LSTM takes more than its backward pass; of the others one of the two."""
    monkeypatch.setattr(ways, "MOST_GATES", 0)  # as for a cell of more gates, which goes by no other way
    size = WalkSize(FORMS[cell], steps, 2, 2000, np.dtype("float64").itemsize)
    scalars = dict(zip(("steps", "hidden", "sets", "batch", "walks"), size.scalars, strict=True))
    facts = {**scalars, "chunk": max(1, steps), "itemsize": 8, "shared_bytes": 2**16}
    needed = {verb: KERNELS[f"{cell}_{verb}"].launch(facts).shared_bytes for verb in ("forward", "backward")}
    few, most = sorted(needed, key=lambda verb: needed[verb])
    assert needed[few] < needed[most] and needed[most] > 2**15
    check_shared(Limited(needed[most]), size)
    for limit in (needed[most] - 1, needed[few]):
        with pytest.raises(DeviceError, match=f"a block of {cell}_{most} takes {needed[most]} bytes"):
            check_shared(Limited(limit), size)
    with pytest.raises(DeviceError, match=r"a block of .* takes"):
        check_shared(Limited(needed[few] - 1), size)
    check_shared(HostDevice(), size)
