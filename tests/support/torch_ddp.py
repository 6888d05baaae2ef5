"""One of two ranks of DistributedDataParallel over a module of ours: FOLDER RANK; writes its gradients."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

import bppsa_cupy.torch as ours

folder, rank = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
torch.manual_seed(rank)  # the first rank's parameters are sent to the other
module = ours.GRU(3, 4, 2).double()
model = torch.nn.parallel.DistributedDataParallel(module)
x = (1 - 2 * rank) * torch.linspace(-1, 1, 5 * 2 * 3, dtype=torch.float64).reshape(5, 2, 3)
model(x)[0].square().sum().backward()
torch.save([parameter.grad for parameter in module.parameters()], folder / f"{rank}.pt")
dist.destroy_process_group()
