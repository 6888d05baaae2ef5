"""What the stages of a pipeline hold in bytes while it is full, from geometry alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.devices.dry import DryDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.layers.arguments import as_bits
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.network.layout import lay_out
from bppsa_cupy.pipeline.links import MOST_SENT
from bppsa_cupy.pipeline.placement import Boundary, Placement
from bppsa_cupy.pipeline.schedules import SCHEDULES, live_passes, make_schedule, staleness
from bppsa_cupy.pipeline.stage import Parcel, Stage

if TYPE_CHECKING:
    from bppsa_cupy.pipeline.execution import Execution
    from bppsa_cupy.training.optimizer import Optimizer


@dataclass(frozen=True)
class StageMemory:
    """Bytes of one stage.

    activations  of all passes alive: outputs, statistics, indices, masks and slopes that layers keep
    received     what entered the stage, for each pass alive, and what is awaited ahead: activations of the
                 stage before, or the network's input; gradients of the next stage, or of the loss
    sent         copies of gradients on their way to the stage before, the most there may be
    scratch      buffers of the way back, among them the gradients by the layers' outputs: one set for all
                 passes, or where the schedule splits the way back one for each pass between its halves
    weights      the parameters, with the zeros that align them
    gradients    as many
    optimizer    its state
    buffers      running statistics and their like
    copies       of the parameters: stashed versions; the present and the predicted values, while a forward
                 pass takes the latter
    sums         of micro-batches' gradients
    """

    activations: int = 0
    received: int = 0
    sent: int = 0
    scratch: int = 0
    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    buffers: int = 0
    copies: int = 0
    sums: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))

    @property
    def of_passes(self) -> int:
        """What passes and schedules take on top of a network and its optimizer."""
        return self.total - self.weights - self.gradients - self.optimizer - self.buffers


def stage_memory(
    placement: Placement,
    name: str,
    batch: int,
    dtype: np.dtype,
    *,
    micro: int = 1,
    device: str = "host",
    over_ranks: bool = True,
    predict: bool = False,
    optimizer_arrays: int = 1,
    ranks: int | None = None,
) -> tuple[StageMemory, ...]:
    """The bytes of every stage under the schedule `name` while the pipeline is full.

    batch             samples
    device            name of the one whose buffers are reckoned
    ranks             as `make_schedule` takes them
    over_ranks        whether stages are of several ranks; a process that acts for all hands on activations
                      without a copy, but where ways back are split
    predict           whether forward passes take predicted weights
    optimizer_arrays  of the optimizer's state, each as large as the parameters: 1 of momentum, 2 of Adam

    The buffers are those that layers ask for in a pass through a device that computes nothing, so the bytes
    are exact; where micro-batches differ in size, they are the most there may be. A smaller last batch has
    buffers of its own for what it receives, which are not in it, nor is what evaluation takes, and passes
    over time by chunks for themselves.
    """
    samples, stages = -(-batch // micro), len(placement.stages)
    ends = *placement.boundaries, Boundary((placement.architecture.output_shape,))
    passing = [_bytes_of(end.of_batch(samples, None), dtype) for end in ends]
    # Parcels of other ranks have buffers by size.
    sizes = {samples, batch // micro} if over_ranks else {samples}
    awaited = [sum(_bytes_of(end.of_batch(size, None), dtype) for size in sizes) for end in ends]
    found = []
    one = make_schedule(name, stages, 1, micro, ranks)
    for number in range(stages):
        alive, missed = live_passes(name, stages, number, micro, ranks), staleness(name, stages, number)
        pending = one.pending_passes(number)
        kept, scratch = pass_bytes(placement, number, samples, dtype, device)
        weights = parameter_bytes(placement, number, dtype)
        first, last = number == 0, number + 1 == stages
        # Activations, then gradients, which the loss gives to the last stage as soon as it is forward.
        entering = alive + 1 if over_ranks else alive * SCHEDULES[name].splits
        entered = alive * passing[0] if first else entering * awaited[number]
        returned = alive * passing[-1] if last else (pending + over_ranks) * awaited[number + 1]
        copies = missed if SCHEDULES[name].stashes else 2 if predict and missed else 0
        found.append(
            StageMemory(
                activations=alive * kept,
                received=entered + returned,
                sent=(MOST_SENT + 1) * passing[number] if over_ranks and not first else 0,
                scratch=pending * scratch,
                weights=weights,
                gradients=weights,
                optimizer=optimizer_arrays * weights,
                buffers=_buffer_bytes(placement, number, dtype),
                copies=copies * weights,
                sums=weights if micro > 1 else 0,
            )
        )
    return tuple(found)


def measured_memory(execution: Execution, optimizer: Optimizer) -> dict[int, StageMemory]:
    """What the stages of this process hold between runs, by stage: the bytes of all their arrays.

    What entered a stage is measured on ranks alone, and what is sent is not: both are gone by then where
    a process acts for all.
    """
    network, found = execution.network, {}
    for number, part in execution.parts.items():
        names = execution.placement.buffer_names[number]
        found[number] = StageMemory(
            activations=_held(array for current in part.free for array in current.kept()),
            received=execution.received[number],
            scratch=_held(part.stage.scratch_arrays()),
            weights=network.parameters.flat[part.own].nbytes,
            gradients=network.gradients.flat[part.own].nbytes,
            optimizer=_held(array[part.own] for array in optimizer.arrays.values()),
            buffers=_held(network.buffers[name] for name in names),
            copies=0 if part.stash is None else part.stash.bytes,
            sums=0 if part.sum is None else part.sum.nbytes,
        )
    return found


def parameter_bytes(placement: Placement, number: int, dtype: np.dtype) -> int:
    """Of a stage's parameters as they lie in a network's `flat`."""
    shapes = placement.architecture.parameter_shapes()
    return (
        lay_out(dtype, {name: shapes[name] for name in placement.parameter_names[number]})[1] * dtype.itemsize
    )


def pass_bytes(
    placement: Placement, number: int, samples: int, dtype: np.dtype, device: str
) -> tuple[int, int]:
    """The bytes that one pass of a stage keeps from forward to backward, and those of the stage's scratch."""
    dry, net = DryDevice(device), placement.architecture
    shapes = net.parameter_shapes()
    owned = {name: dry.empty(shapes[name], dtype) for name in placement.parameter_names[number]}
    masks = {name: as_bits(dry, mask, dtype) for name, mask in net.masks.items() if name in owned}
    initial = net.initial_buffers()
    buffers = {name: dry.asarray(initial[name]) for name in placement.buffer_names[number]}
    stage = Stage(placement, number, dry, dtype, owned, owned, masks, buffers)
    current = stage.new_pass()
    given = tuple(dry.empty(shape, dtype) for shape in placement.boundaries[number].of_batch(samples, None))
    made = stage.forward(current, given)
    stage.backward(current, tuple(dry.empty(array.shape, dtype) for array in made), _no_send)
    return _held(current.kept()), _held(stage.scratch_arrays())


def _no_send(parcel: Parcel) -> None:
    """Of a pass whose gradients nobody takes."""


def _held(arrays: Iterable[Array]) -> int:
    return sum(array.nbytes for array in arrays)


def _bytes_of(shapes: Iterable[Shape], dtype: np.dtype) -> int:
    return sum(map(math.prod, shapes)) * dtype.itemsize


def _buffer_bytes(placement: Placement, number: int, dtype: np.dtype) -> int:
    """Of a stage's running statistics and their like; integers are int64."""
    initial = placement.architecture.initial_buffers()
    arrays = [initial[name] for name in placement.buffer_names[number]]
    return sum(array.size * (8 if array.dtype.kind == "i" else dtype.itemsize) for array in arrays)


def check_free(stages: range, memory: Sequence[StageMemory], held: int, free: int, device: str) -> None:
    """Raise DeviceError, with the bytes by stage and those that are free, where the passes of these stages do
    not fit.

    held  bytes that earlier passes have taken, which are used again
    """
    needed = sum(memory[stage].of_passes for stage in stages) - held
    if needed > free:
        rows = ", ".join(f"stage {stage} {memory[stage].of_passes}" for stage in stages)
        raise DeviceError(
            f"{device}: the pipeline's passes take {needed} more bytes ({rows}), {free} are free: use a "
            "smaller batch, fewer cuts, or a schedule with fewer passes alive"
        )
