"""Layers, a family per file."""

from inspect import isabstract, isclass

from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.layers.cell_layers import GRU, LSTM, RNN, CellLayer, LinearCellLayer
from bppsa_cupy.layers.conv2d import Conv2d
from bppsa_cupy.layers.diagonal_recurrent import LRU, DiagonalSSM
from bppsa_cupy.layers.elementwise import (
    ELU,
    GELU,
    Dropout,
    Flatten,
    LeakyReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
)
from bppsa_cupy.layers.linear_recurrent import QRNN, RGLRU, SRU, LinearRecurrent, MinGRU, MinLSTM
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.layers.norms import BatchNorm1d, BatchNorm2d
from bppsa_cupy.layers.pools import AvgPool2d, MaxPool2d
from bppsa_cupy.layers.recurrent import Recurrent
from bppsa_cupy.layers.selection import Pad2d, PadShortcut
from bppsa_cupy.layers.stack import Residual
from bppsa_cupy.layers.weighted import Linear

__all__ = [
    "ELU", "GELU", "GRU", "LAYERS", "LRU", "LSTM", "QRNN", "RGLRU", "RNN", "SRU",
    "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "CellLayer", "Context",
    "Conv2d", "DiagonalSSM", "Dropout", "Flatten",
    "Layer", "LeakyReLU", "Linear", "LinearCellLayer", "LinearRecurrent", "MatrixRecurrent", "MaxPool2d",
    "MinGRU", "MinLSTM", "Pad2d", "PadShortcut", "ReLU", "Recurrent", "Residual",
    "Shape", "SiLU", "Sigmoid", "Softplus", "Tanh",
]  # fmt: skip

#: Every layer a network can be built from, by class name.
LAYERS: dict[str, type[Layer]] = {
    name: kind
    for name, kind in sorted(globals().items())
    if name in __all__ and isclass(kind) and issubclass(kind, Layer) and not isabstract(kind)
}
