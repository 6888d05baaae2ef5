"""Names that options accept. They are repeated here so that `--help` need not import what defines them."""

from __future__ import annotations

MODELS = (
    "lenet5", "vgg11", "vgg16", "alexnet", "resnet20", "resnet56", "resnet110", "resnet224", "resnet362",
    "rnn", "gru", "lstm",
)  # fmt: skip
OUTPUTS = ("all", "last")
FORWARD_METHODS = ("auto", "serial", "newton")
SCHEDULES = ("linear", "blelloch", "hybrid")
METHODS = ("auto", "bp", *SCHEDULES)
PIPELINES = ("none", "stale", "gpipe", "1f1b", "pipedream", "stale-1f1b")
SCOPES = ("layer", "global")
AUGMENTATIONS = ("crop-flip",)
TRANSPORTS = ("host", "nccl")
SETS = ("L", "M", "S")
OPTIMIZERS = ("sgd", "adam", "adamw")
#: What ranks may share: the samples of each batch, the layers of a network, or the steps of its sequences.
RANKS = ("batch", "layers", "time")
#: What the parts of a partition are made equal in, the default first.
BALANCES = ("multiply-adds", "measured")
