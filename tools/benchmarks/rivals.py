"""PyTorch as a rival: the same network from the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import Measurement, Rival, Side
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Workload
from bppsa_cupy.tools.machine import torch_device

if TYPE_CHECKING:
    import torch

#: PyTorch's OpenMP threads spin as long as GNU's OpenMP has them by default, which the host device changes.
DEFAULT_WAIT = {"GOMP_SPINCOUNT": "300000"}


def torch_side(factory: Callable[..., Workload], options: Mapping[str, Any], threads: int) -> Side:
    """PyTorch's side, with its own defaults."""
    return Side(factory, options, threads, imports=("torch",), variables=DEFAULT_WAIT)


def torch_sides(
    name: str, factory: Callable[..., Workload], options: Mapping[str, Any], threads: int
) -> dict[str, Side]:
    """PyTorch's sides on one thread and on `threads`, by what they are called."""
    return {
        f"{name}, {thread_count(each)}": torch_side(factory, options, each) for each in sorted({1, threads})
    }


def thread_count(threads: int) -> str:
    """A number of threads in words."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


def torch_network(network: Sequential) -> torch.nn.Sequential:
    """The network in PyTorch, with copies of its parameters, on the same device.

    Layers' names, arguments and parameters are PyTorch's.
    """
    import torch

    from bppsa_cupy.tools.torch_modules import module_of

    model = torch.nn.Sequential(*map(module_of, network.layers)).to(getattr(torch, network.dtype.name))
    model.load_state_dict({name: torch.tensor(array) for name, array in network.state_dict().items()})
    return model.to(torch_device(network.device))


def torch_recurrent(network: Sequential) -> torch.nn.ModuleList:
    """A recurrent and a linear layer in PyTorch, with copies of the network's parameters, on the host."""
    import torch

    parameters = {name: torch.tensor(array) for name, array in network.state_dict().items()}
    classes, hidden = parameters["1.weight"].shape
    cell = getattr(torch.nn, type(network.layers[0]).__name__)
    recurrent = cell(network.input_shape[1], hidden, batch_first=True)
    model = torch.nn.ModuleList([recurrent, torch.nn.Linear(hidden, classes)])
    model.to(getattr(torch, network.dtype.name)).load_state_dict(parameters)
    return model


class TorchWorkload(Workload):
    """Work of PyTorch's."""

    def device_bytes(self) -> int:
        """Bytes of the GPU that PyTorch's memory pool held at most."""
        import torch

        return int(torch.cuda.max_memory_reserved())


def to_numpy(tensor: Any) -> Any:
    """A tensor's values on the host."""
    return tensor.detach().cpu().numpy()


def best(rivals: Mapping[str, Measurement]) -> Rival:
    """The name and the measurement of the quickest of some rivals; None where there is none."""
    if not rivals:
        return None
    name = min(rivals, key=lambda rival: np.median(rivals[rival].seconds[OVERALL]))
    return name, rivals[name]
