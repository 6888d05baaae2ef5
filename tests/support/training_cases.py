"""A small data set, networks and optimizers to train with, and PyTorch's batches."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A small separable data set: 50 training and 20 test images in three classes."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 70)
    images = rng.standard_normal((70, 1, 6, 6)).astype("float32")
    images[np.arange(70), 0, labels] += 4
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    np.savez(path, x_train=images[:50], y_train=labels[:50], x_test=images[50:], y_test=labels[50:])
    return load(path)


def make(dtype="float64", seed=0):
    layers = [bp.Conv2d(1, 3, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(12, 3)]
    return bp.Sequential(layers, (1, 6, 6), seed=seed, dtype=dtype, device="host")


def optimizer_of(net):
    return bp.SGD(net.parameters, lr=0.05, momentum=0.9)


def run_training(dataset, net=None, resume=None, **settings):
    net = net or make()
    history = train(net, dataset, optimizer_of(net), Settings(batch_size=16, **settings), resume=resume)
    return net, history


def torch_batches(dataset, epochs):
    """Inputs and labels of every batch of 16 of the 50 samples, in the order of training with seed 0."""
    mean, std = dataset.normalization.mean[0], dataset.normalization.std[0]
    for epoch in range(epochs):
        order = np.random.default_rng((0, epoch)).permutation(50)
        for start in range(0, 50, 16):
            chosen = order[start : start + 16]
            inputs = (torch.tensor(dataset.train.inputs[chosen], dtype=torch.float64) - mean) / std
            yield inputs, torch.tensor(dataset.train.labels[chosen])
