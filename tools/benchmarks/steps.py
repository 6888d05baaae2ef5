"""Training steps, plain and as one CUDA graph, beside PyTorch, eager and in a CUDA graph."""

from __future__ import annotations

import argparse
import gc
import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Case, Rival, Step, passes_step
from bppsa_cupy.tools.benchmarks.recurrent import FEATURES, HIDDEN, LAYERS, paper_cases
from bppsa_cupy.tools.benchmarks.recurrent import make_batch as make_sequences
from bppsa_cupy.tools.benchmarks.recurrent import make_network as make_recurrent
from bppsa_cupy.tools.benchmarks.train import LEARNING_RATE, LEAST_GRADIENT, MOMENTUM, make_batch

#: Steps before a CUDA graph of PyTorch is captured.
WARM_UP = 2
#: Sizes of the grid; the batches and widths come first at which PyTorch is strongest.
GRID_HIDDEN, GRID_BATCH, GRID_STEPS = (1024, 512, 64, 128, 256), (64, 16, 1), 1000
#: The recurrent cases of the paper, and image models with the share of weights pruned, by value.
PAPER = ("T1000", "S", "M", "L", "T10", "T30000", "B256")
MODELS = (("vgg11", 0.97), ("lenet5", 0.0), ("resnet20", 0.0), ("vgg11", 0.0))
IMAGE_BATCH = (16, 64, 256)


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Our captured step beside our plain one and PyTorch's. All sides share one process, as a GPU's contexts
    would take turns."""
    for kind, name, make in networks(arguments.quick):
        if kind not in arguments.kinds:
            continue
        sides: dict[str, Callable[..., Step]] = {"plain": plain_step}
        if "compile" in arguments.against:
            sides["PyTorch compiled"] = partial(torch_step, compiled=True)
        if "torch" in arguments.against:
            sides["PyTorch"] = torch_step
            if arguments.device == "cuda":
                sides |= {
                    "PyTorch in a CUDA graph": partial(torch_step, graph=True),
                    "PyTorch with TF32": partial(torch_step, tf32=True),
                    "PyTorch in a CUDA graph with TF32": partial(torch_step, graph=True, tf32=True),
                }
        rivals = {side: Rival(partial(build, make, arguments.device)) for side, build in sides.items()}
        yield Case(
            name, partial(captured_step, make, arguments.device), rivals, tolerance=math.inf,
            least=LEAST_GRADIENT, quantities={OVERALL: "step, captured"}, together=True,
        )  # fmt: skip
        release(arguments.device)


Make = Callable[[str], tuple[Sequential, Any, Any]]


def networks(quick: bool = False) -> Iterator[tuple[str, str, Make]]:
    """Kind, name, and what makes network, inputs and labels on a device; those of the goals first; with
    `quick` a small one of each kind."""
    paper = {case[0]: (cell, *case[1:4]) for cell in ("rnn", "gru") for case in paper_cases(cell)}
    for name in ("T10",) if quick else PAPER:
        cell, steps, features, batch = paper[name]
        yield "paper", f"{cell.upper()} {name}", partial(recurrent, cell, steps, features, batch, HIDDEN)
    for (model, share), batch in [(MODELS[1], 2)] if quick else itertools.product(MODELS, IMAGE_BATCH):
        pruned = f" pruned by {share:.0%}" if share else ""
        yield "images", f"{model}{pruned} B={batch}", partial(images, model, share, batch)
    grid = itertools.product(GRID_BATCH, GRID_HIDDEN, LAYERS)
    for batch, hidden, cell in [(2, 6, "gru")] if quick else grid:
        steps = 12 if quick else GRID_STEPS
        name = f"{cell.upper()} H={hidden} B={batch} T={steps}"
        yield "grid", name, partial(recurrent, cell, steps, FEATURES, batch, hidden)


def recurrent(
    cell: str, steps: int, features: int, batch: int, hidden: int, device: str
) -> tuple[Sequential, Any, Any]:
    """The paper's model: the last state of one recurrent layer, and a linear layer."""
    return make_recurrent(cell, device, steps, features, hidden), *make_sequences(steps, features, batch)


def images(model: str, share: float, batch: int, device: str) -> tuple[Sequential, Any, Any]:
    """A model for images of 32 × 32, and random ones."""
    network = build_model(model, device=device)
    if share:
        network.set_masks(masks_of(model, share))
    return network, *make_batch(network, batch)


@cache
def masks_of(model: str, share: float) -> dict[str, np.ndarray]:
    """The masks of the model pruned by magnitude. The largest weights are looked for only once."""
    network = build_model(model, device="host")
    prune(network, share)
    return dict(network.masks)


def _whole(step: Step) -> Step:
    """The step as one part: samples are steps in a row, without a wait between them."""
    parts = tuple(step.parts.values())

    def run_step() -> None:
        for part in parts:
            part()

    step.parts = {OVERALL: run_step}
    return step


def plain_step(make: Make, device: str) -> Step:
    """Our step, launch by launch."""
    network, inputs, labels = make(device)
    optimizer = bp.SGD(network.parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
    return _whole(
        passes_step(network, inputs, labels, optimizer=optimizer, note=partial(_ways, network, "plain"))
    )


def captured_step(make: Make, device: str) -> Step:
    """Our step as one CUDA graph."""
    network, inputs, labels = make(device)
    optimizer = bp.SGD(network.parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
    step, x, results = bp.CapturedStep(network, optimizer), network.device.asarray(inputs), dict[str, Any]()

    def run_step() -> None:
        results["run"] = step(x, labels)

    def result() -> dict[str, np.ndarray]:
        host = network.device.to_host
        gradients = {name: np.array(host(array)) for name, array in network.gradients.items()}
        return {"loss": np.asarray(results["run"].loss), **gradients}

    return Step({OVERALL: run_step}, result, network.device, note=lambda: _ways(network, step.ran))


def _ways(network: Sequential, ran: str) -> str:
    """How a step ran, and the ways of the passes of recurrent layers."""
    forward, back = network.last_pass, network.last_backward
    ways = [*getattr(forward, "forward_ways", ()), *getattr(back, "backward_ways", ())]
    return ", ".join([ran, *map(str, ways)])


def torch_step(
    make: Make, device: str, tf32: bool = False, graph: bool = False, compiled: bool = False
) -> Step:
    """A step of PyTorch; as a graph it copies inputs and labels into its buffers. `compiled` is by
    `torch.compile(mode="reduce-overhead")`."""
    import torch

    from bppsa_cupy.tools.torch_modules import torch_network, torch_passes

    def prepare() -> None:
        """Switch TF32 on or off for products, convolutions and recurrent layers."""
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32

    network, inputs, labels = make(device)
    model = torch_network(network)
    prepare()
    torch.backends.cudnn.benchmark = True
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True)
    if compiled:
        model.compile(mode="reduce-overhead")
    x, y = (torch.tensor(array, device=next(model.parameters()).device) for array in (inputs, labels))
    step = _whole(
        torch_passes(model, x, y, network.device, optimizer=optimizer, masks=network.masks, prepare=prepare)
    )
    if graph:
        step.parts = {OVERALL: _graph_of(step, model, optimizer, x, y)}
    return step


def _graph_of(step: Step, model: Any, optimizer: Any, *buffers: Any) -> Callable[[], None]:
    """A step of PyTorch as a CUDA graph, after copies of inputs and labels into its buffers. It starts from
    the initial parameters, as the other sides do."""
    import torch

    run_step, state = step.parts[OVERALL], {n: p.detach().clone() for n, p in model.state_dict().items()}
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(WARM_UP):
            run_step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_step()
    model.load_state_dict(state)
    for moments in optimizer.state.values():
        moments["momentum_buffer"].zero_()
    pairs = [(buffer.clone(), buffer) for buffer in buffers]
    # The graph holds addresses of what `run_step` keeps, among them the optimizer's momentum.
    return partial(_replay, graph, pairs, run_step)


def _replay(graph: Any, pairs: list[tuple[Any, Any]], _kept: Callable[[], object]) -> None:
    for source, buffer in pairs:
        buffer.copy_(source, non_blocking=True)
    graph.replay()


def release(device: str) -> None:
    """Give memory that the pools do not need back to the GPU."""
    gc.collect()
    if device == "cuda":
        import torch

        get_device(device).xp.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
