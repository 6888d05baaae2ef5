"""A training step by PyTorch's DistributedDataParallel over the ranks of a benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bppsa_cupy.distributed import Group
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.rivals import torch_network, torch_recurrent


def ddp_step(
    group: Group, network: Sequential, x: np.ndarray, labels: np.ndarray, own: slice, meeting: str
) -> Callable[[], None]:
    """A step of training of a rank's own samples, over gloo.

    network  without recurrent layers, or a recurrent and a linear layer of its last state
    meeting  a path at which the ranks meet
    """
    import torch

    torch.set_num_threads(1)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=group.rank, world_size=group.size
        )

    class LastState(torch.nn.Module):
        """A recurrent layer, and a linear one of its last state."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch_recurrent(network)

        def forward(self, x: Any) -> Any:
            recurrent, linear = self.layers
            return linear(recurrent(x)[0][:, -1])

    module = LastState() if network.architecture.recurrent else torch_network(network)
    model = torch.nn.parallel.DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    inputs, targets = torch.tensor(x[own]), torch.tensor(labels[own])

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step
