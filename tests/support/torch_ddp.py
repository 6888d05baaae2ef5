"""One of two ranks of DistributedDataParallel over our modules: FOLDER RANK; writes what they computed."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune

import bppsa_cupy.torch as ours


def pruned_net() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 5)
    net = torch.nn.Sequential(*layers).double()
    for k in (0, 3):
        prune.random_unstructured(net[k], "weight", 0.9)
    return net


def inputs_of(rank: int) -> torch.Tensor:
    return torch.randn(3, 4, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


def train(net: torch.nn.Module, model: torch.nn.Module, inputs: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for x in inputs:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def main(folder: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(rank)  # the first rank's parameters are sent to the other
    module = ours.GRU(3, 4, 2).double()
    model = DistributedDataParallel(module)
    x = (1 - 2 * rank) * torch.linspace(-1, 1, 5 * 2 * 3, dtype=torch.float64).reshape(5, 2, 3)
    model(x)[0].square().sum().backward()
    states = []
    for compact in (False, True):
        net = ours.convert(pruned_net(), sparse=0.8, compact=compact)
        train(net, DistributedDataParallel(net), inputs_of(rank))
        states.append(net.state_dict())
    torch.save(([parameter.grad for parameter in module.parameters()], states), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
