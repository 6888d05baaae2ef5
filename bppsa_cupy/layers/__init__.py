"""Layers, one a file."""

from bppsa_cupy.layers.adaptive_avg_pool2d import AdaptiveAvgPool2d
from bppsa_cupy.layers.avg_pool2d import AvgPool2d
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.layers.batch_norm import BatchNorm1d, BatchNorm2d
from bppsa_cupy.layers.causal_conv1d import CausalConv1d
from bppsa_cupy.layers.cell_layer import CTRNN, MGU, UGRNN, CellLayer, LinearCellLayer, PeepholeLSTM
from bppsa_cupy.layers.conv2d import Conv2d
from bppsa_cupy.layers.diagonal_recurrent import LRU, DiagonalSSM
from bppsa_cupy.layers.dropout import Dropout
from bppsa_cupy.layers.elu import ELU
from bppsa_cupy.layers.embedding import Embedding
from bppsa_cupy.layers.flatten import Flatten
from bppsa_cupy.layers.frozen_batch_norm2d import FrozenBatchNorm2d
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.layers.gelu import GELU
from bppsa_cupy.layers.gru import GRU
from bppsa_cupy.layers.leaky_relu import LeakyReLU
from bppsa_cupy.layers.linear import Linear
from bppsa_cupy.layers.linear_recurrent import LinearRecurrent
from bppsa_cupy.layers.lstm import LSTM
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.layers.max_pool2d import MaxPool2d
from bppsa_cupy.layers.mingru import MinGRU, MinLSTM
from bppsa_cupy.layers.pad_shortcut import PadShortcut
from bppsa_cupy.layers.recurrent import Recurrent
from bppsa_cupy.layers.relu import ReLU
from bppsa_cupy.layers.residual import Residual
from bppsa_cupy.layers.rglru import RGLRU
from bppsa_cupy.layers.rms_norm import RMSNorm
from bppsa_cupy.layers.rnn import RNN
from bppsa_cupy.layers.sigmoid import Sigmoid
from bppsa_cupy.layers.silu import SiLU
from bppsa_cupy.layers.softplus import Softplus
from bppsa_cupy.layers.sru import QRNN, SRU, PeepholeSRU
from bppsa_cupy.layers.tanh import Tanh

#: Every layer a network can be built from, by class name.
LAYERS: dict[str, type[Layer]] = {
    layer.__name__: layer
    for layer in (
        AdaptiveAvgPool2d,
        AvgPool2d,
        BatchNorm1d,
        BatchNorm2d,
        CTRNN,
        CausalConv1d,
        CellLayer,
        Conv2d,
        DiagonalSSM,
        Dropout,
        ELU,
        Embedding,
        Flatten,
        FrozenBatchNorm2d,
        GELU,
        GRU,
        LRU,
        LSTM,
        LeakyReLU,
        Linear,
        LinearCellLayer,
        MGU,
        MaxPool2d,
        MinGRU,
        MinLSTM,
        PadShortcut,
        PeepholeLSTM,
        PeepholeSRU,
        QRNN,
        RGLRU,
        RMSNorm,
        RNN,
        ReLU,
        Residual,
        SRU,
        SiLU,
        Sigmoid,
        Softplus,
        Tanh,
        UGRNN,
    )
}

__all__ = [
    "CTRNN",
    "ELU",
    "GELU",
    "GRU",
    "LAYERS",
    "LRU",
    "LSTM",
    "MGU",
    "QRNN",
    "RGLRU",
    "RNN",
    "SRU",
    "UGRNN",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "CausalConv1d",
    "CellLayer",
    "Context",
    "Conv2d",
    "DiagonalSSM",
    "Dropout",
    "Embedding",
    "Flatten",
    "FrozenBatchNorm2d",
    "GatedRecurrent",
    "Layer",
    "LeakyReLU",
    "Linear",
    "LinearCellLayer",
    "LinearRecurrent",
    "MatrixRecurrent",
    "MaxPool2d",
    "MinGRU",
    "MinLSTM",
    "PadShortcut",
    "PeepholeLSTM",
    "PeepholeSRU",
    "RMSNorm",
    "ReLU",
    "Recurrent",
    "Residual",
    "Shape",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Tanh",
]
