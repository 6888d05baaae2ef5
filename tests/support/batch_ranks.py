"""What every rank does in one start of mpiexec: batches shared over MPI, against one process and PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from group_cases import raises
from mpi import play

import bppsa_cupy as bp
from bppsa_cupy.distributed import Group
from bppsa_cupy.errors import DistributedError


def network(dtype="float64", seed=3):
    layers = [bp.Conv2d(1, 3, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(27, 4)]
    return bp.Sequential(layers, (1, 8, 8), seed=seed, dtype=dtype, device="host")


def steps(net, optimizer, batches):
    for x, labels in batches:
        _, gradient = bp.cross_entropy(net.forward(x), labels)
        net.backward(gradient)
        bp.clip_grad_norm(net.gradients, 1.0)
        optimizer.step(net.gradients)
    return net.state_dict()


def made(sizes, dtype="float64"):
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((n, 1, 8, 8)).astype(dtype), rng.integers(0, 4, n)) for n in sizes]


def case_the_bits_are_those_of_one_process(group: Group) -> None:
    for dtype, micro in (("float32", 3), ("float64", 5)):
        reference, net = bp.accumulate(network(dtype), micro), bp.distribute(
            network(dtype), group, over="batch", micro_batch=micro
        )  # fmt: skip
        results = [
            steps(each, bp.Adam(each.parameters, lr=0.01), made((12, 12, 7, 1), dtype))
            for each in (net, reference)
        ]
        for name, array in results[0].items():
            np.testing.assert_array_equal(array, results[1][name], err_msg=name)
        assert net.parameters.flat is not reference.parameters.flat


def case_equal_parts_are_those_of_ddp(group: Group) -> None:
    """Gradients of gloo's ring are in another order: up to rounding, over some steps."""
    net = bp.distribute(network(), group, over="batch")
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(27, 4),
    ).double()
    module.load_state_dict({name: torch.tensor(array) for name, array in net.state_dict().items()})
    meeting = Path(os.environ["MEETING"])
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=group.rank, world_size=group.size
    )
    model = torch.nn.parallel.DistributedDataParallel(module)
    theirs = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = made((12, 12, 12))
    for x, labels in batches:
        k = net.own_samples(12)
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.tensor(x[k])), torch.tensor(labels[k])).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        theirs.step()
    state = steps(net, bp.SGD(net.parameters, lr=0.1, momentum=0.9), batches)
    for name, tensor in module.state_dict().items():
        np.testing.assert_allclose(state[name], tensor.numpy(), rtol=1e-10, atol=1e-10, err_msg=name)
    torch.distributed.destroy_process_group()


def case_what_does_not_fit_is_named(group: Group) -> None:
    for options in ({"micro_batch": 2}, {"over": "batch", "chunk": 3}, {"over": "time", "micro_batch": 3}):
        with raises(DistributedError, "or pass over="):
            bp.distribute(network(), group, **options)
    with raises(DistributedError, "differ in micro_batch"):
        bp.distribute(network(), group, over="batch", micro_batch=2 + group.rank)


if __name__ == "__main__":
    play(globals())
