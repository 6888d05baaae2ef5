"""One rank's stage of a pipelined network, with the interface of Sequential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.parameters import RankBuffers, RankParameters
from bppsa_cupy.distributed.shared import SharedSequential
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.backward import Backward
from bppsa_cupy.network.forward import take_input
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.placement import Placement
from bppsa_cupy.pipeline.stage import Stage
from bppsa_cupy.timescan.lengths import take_lengths

#: The tag of activations of forward passes outside of a schedule.
RELAY = 1


class StageSequential(SharedSequential):
    """A network of which this rank has one stage; made by `Pipeline`.

    Every rank calls `forward`, `state_dict`, `load_state_dict` and the optimizer's `state_dict` with the same
    arguments, in the same order. `parameters`, `gradients` and `buffers` are those of the stage, by the
    names of the whole network; `state_dict` is whole. `forward` is for evaluation: the output is given to
    all ranks, and no pass is kept; the pipeline's own passes go back. Raises what `SharedSequential` raises.
    """

    def __init__(self, network: Sequential, group: Group, placement: Placement) -> None:
        shapes, dtype = network.architecture.parameter_shapes(), network.dtype
        owners = {
            name: stage
            for names in (placement.parameter_names, placement.buffer_names)
            for stage, own in enumerate(names)
            for name in own
        }
        parameters, gradients = (RankParameters(group, dtype, shapes, owners) for _ in range(2))
        buffers = RankBuffers(group, dtype, network.architecture.initial_buffers(), owners)
        super().__init__(network, group, parameters, gradients, buffers, Backward(), ppv=placement.ppv)
        self.placement = placement
        arrays = parameters.arrays, gradients.arrays, parameters.masks, buffers
        self._stage = Stage(placement, group.rank, self.device, dtype, *arrays)
        self._evaluation = self._stage.new_pass()

    def forward(
        self, x: Any, lengths: Any = None, states: Any = None, *, into: Pass | None = None, keep: bool = True
    ) -> Array:
        if self.training or states is not None:
            raise DistributedError(
                "forward of a pipelined network is for evaluation, from states of 0: call eval() before it; "
                "training is bppsa_cupy.training.loop.train of the pipeline"
            )
        with self.device.naming_memory:
            return self._evaluated(x, lengths)

    def _evaluated(self, x: Any, lengths: Any) -> Array:
        """The output of all stages, in evaluation."""
        group, xp = self.group, self.device.xp
        given = take_input("the network", self.device, self.dtype, x, self.architecture.check_input)
        batch, steps = len(given), given.shape[1]
        self.parameters.apply_masks()
        group.finish()
        taken = None if lengths is None else take_lengths(self.device, lengths, batch, steps)
        number, last, made = group.rank, group.size - 1, (given,)
        if number > 0:
            shapes = self.placement.boundaries[number].of_batch(batch, steps)
            made = tuple(self.device.empty(shape, self.dtype) for shape in shapes)
            for array in made:
                group.receive(array, number - 1, RELAY)
        made = self._stage.forward(self._evaluation, made, lengths=taken, training=False)
        made = tuple(map(xp.ascontiguousarray, made))
        if number < last:
            for array in made:
                group.isend(array, number + 1, RELAY)
            shape = (steps if size is None else size for size in self.output_shape)
            made = (self.device.empty((batch, *shape), self.dtype),)
        group.broadcast(made[0], last)
        return made[0]

    def backward(self, *_: Any, **__: Any) -> NoReturn:
        raise DistributedError(
            "a pipelined network goes back inside of training alone: load its state_dict() into a Sequential"
        )

    def set_masks(self, masks: Mapping[str, Any]) -> NoReturn:
        raise DistributedError(
            "a pipelined network keeps the masks it was made with: set others before bp.Pipeline"
        )

    def _contexts(self) -> list[Context]:
        return []
