"""The paper's numbers: BPPSA: Scaling Back-propagation by Parallel Scan Algorithm (MLSys 2020)."""

from __future__ import annotations

from typing import NamedTuple


class Operator(NamedTuple):
    """A row of table 1: an operator of VGG-11 on 32×32 images.

    `sparsity` is the fraction of guaranteed zeros. `speed_up` compares analytic values with PyTorch's
    autograd, which computes one column at a time.
    """

    name: str
    sparsity: float
    speed_up: float


class Epoch(NamedTuple):
    """A row of tables 4 to 6: seconds of an epoch on a V100.

    `forward` is the forward pass of PyTorch, and `baseline` its training with cuDNN. `prepared` is the
    forward pass that stores the values for the scan, and `bppsa` training by the scan.
    """

    forward: float
    baseline: float
    prepared: float
    bppsa: float

    @property
    def backward_ratio(self) -> float:
        """Baseline / BPPSA of the way back, without their forward passes, as appendix G derives it."""
        return (self.baseline - self.forward) / (self.bppsa - self.prepared)

    @property
    def overall_ratio(self) -> float:
        """Baseline / BPPSA of the whole."""
        return self.baseline / self.bppsa


def _rnn(forward: float, baseline: float, bppsa: float) -> Epoch:
    return Epoch(forward, baseline, forward, bppsa)


#: By the layer's place in VGG-11.
TABLE1 = {
    0: Operator("convolution", 0.99157, 8.3e3),
    1: Operator("ReLU", 0.99998, 1.2e6),
    2: Operator("max-pooling", 0.99994, 1.5e5),
}

#: The RNN by T at B = 16, and by B at T = 1000.
TABLE4 = {
    10: _rnn(1.57, 4.49, 4.24),
    30: _rnn(2.13, 5.5, 4.91),
    100: _rnn(3.82, 8.87, 6.64),
    300: _rnn(8.79, 18.49, 11.71),
    1000: _rnn(25.86, 53.33, 29.29),
    3000: _rnn(75.33, 157.11, 79.48),
    10000: _rnn(250.28, 510.13, 265.02),
    30000: _rnn(748.99, 1557.94, 764.31),
}
TABLE5 = {
    2: _rnn(200.65, 409.33, 227.13),
    4: _rnn(100.55, 209.67, 112.23),
    8: _rnn(51.29, 102.77, 56.37),
    16: _rnn(25.86, 53.33, 29.29),
    32: _rnn(13.62, 29.51, 15.0),
    64: _rnn(7.51, 14.77, 9.27),
    128: _rnn(3.87, 7.96, 5.49),
    256: _rnn(2.13, 4.02, 3.72),
}
#: The GRU by set and B.
TABLE6 = {
    ("S", 16): Epoch(1.66, 3.71, 2.1, 2.94),
    ("S", 32): Epoch(0.91, 1.9, 1.09, 1.48),
    ("S", 64): Epoch(0.52, 1.0, 0.62, 0.82),
    ("M", 16): Epoch(3.21, 6.19, 3.52, 4.2),
    ("M", 32): Epoch(1.73, 3.3, 1.83, 2.22),
    ("M", 64): Epoch(0.86, 1.82, 1.18, 1.2),
    ("L", 16): Epoch(5.78, 11.43, 6.06, 6.91),
    ("L", 32): Epoch(3.04, 6.09, 3.23, 3.57),
    ("L", 64): Epoch(1.64, 3.19, 2.13, 2.33),
}
#: Steps and features of the sets (table 3).
SETS = {"S": (259, 38), "M": (517, 24), "L": (1034, 12)}
