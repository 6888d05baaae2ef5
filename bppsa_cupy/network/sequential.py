"""A network of layers: forward passes, and backward passes by back-propagation or by scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, overload

from bppsa_cupy.arguments import as_flag
from bppsa_cupy.devices import Array, get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.network.analysis import jacobian_records
from bppsa_cupy.network.bound_layer import BoundLayer
from bppsa_cupy.network.forward import begin, through
from bppsa_cupy.network.holder import Holder
from bppsa_cupy.network.parts import consecutive
from bppsa_cupy.network.passes import Pass, current_pass, own_pass
from bppsa_cupy.network.run_scans import RunScans
from bppsa_cupy.plan import Partition, Plan, build_plan, model_of
from bppsa_cupy.records.records import JacobianRecords


class Sequential(Holder):
    """Layers one after another, their parameters, and the latest forward pass.

    layers       Layer objects in order
    input_shape  of one sample, e.g. (3, 32, 32), or (T, F) of sequences; (None, F) takes any T
    seed         of the initial parameters (PyTorch's default distributions), an integer of at least 0
    dtype        "float32" or "float64", of parameters, activations and gradients
    device       "auto", "cuda" (or "gpu") or "host" (or "cpu")

    buffers       what layers hold beside parameters, by name: BatchNorm's running statistics
    random_state  what the random numbers of training (Dropout) follow from, as JSON holds it: a key drawn
                  from the seed, and the number of forward passes in training mode so far

    Parameters are named as PyTorch's Sequential names them: "0.weight". Raises ShapeError where a
    layer does not take what the one before it gives.
    """

    # ---- forward ----

    @overload
    def __getitem__(self, index: int) -> BoundLayer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> BoundLayer | Sequential:
        """Layer `index` with the network's parameters, to be called on its own: net[0](x, h0). Or a network
        of consecutive layers, net[:3], which shares.

        Shared are parameters, gradients, buffers, masks and the random state: a step of an optimizer on
        `net[:3].parameters` changes `net`, and a backward pass of either writes over the same gradients. Its
        own are passes, the plan in use, and the mode, which is that of `net` at first. Its layers and names
        count from 0, so `net[3:]` calls layer 3 "0". A copy or pickle of it is a network of its own.
        Raises ShapeError for layers that do not follow each other.
        """
        if isinstance(index, slice):
            return self._part(consecutive(index, len(self)))
        position = range(len(self))[index]
        return BoundLayer(self.layers[position], partial(self._context, position))

    def _part(self, layers: range) -> Sequential:
        """The network of these layers, which shares what this one holds."""
        part = Sequential.__new__(Sequential)
        part._share(self, layers)
        return part

    def __iter__(self) -> Iterator[BoundLayer]:
        return (self[index] for index in range(len(self)))

    def forward(self, x: Any, lengths: Any = None, states: Any = None, *, into: Pass | None = None) -> Array:
        """The output for a batch `x` (B, *input_shape), B >= 1. A list of numbers takes the network's
        dtype; an array of another one is converted where every value stays what it is, with a warning the
        first time.

        lengths  of sequences (B, T, F): (B,) integers from 1 to T, where each sample ends; by default at T.
                 Recurrent layers take no step behind it, and put out 0 there
        states   recurrent layers' states before the first step, by the layer's index: (num_layers D, B, H),
                 for an LSTM the pair of h and c; by default 0. A single recurrent layer may be given
                 its state alone. Those after the last step are then in `last_pass.states`

        The pass is kept as `last_pass`. `into` names an earlier pass whose arrays may be written
        over, among them the output it returned; without it the pass takes new arrays. `x` is kept by
        reference until the backward pass. Raises ShapeError naming both shapes or dtypes, DeviceError where
        the device has too little memory; buffers and random state are as before then, and the call may be
        made again.
        """
        with self.device.naming_memory:
            current = (
                Pass(self.parameters, self.architecture, self._contexts())
                if into is None
                else own_pass(into, self.parameters)
            )
            if current.architecture is not self.architecture:  # the pass is older than the masks, or the mode
                current.architecture, current.layers = self.architecture, self._contexts()
            given = begin(current, x, lengths, states)
            self._keep_state()
            try:
                y = current.output = self._through(current, given)
            except BaseException:
                self.undo_forward()
                raise
        self.last_pass = current
        self.random_state["passes"] += self.training
        return y

    def __call__(self, x: Any, lengths: Any = None, states: Any = None) -> Array:
        """`forward`, as PyTorch's modules are called."""
        return self.forward(x, lengths, states)

    def _through(self, current: Pass, x: Array) -> Array:
        """The output of all layers."""
        return through(current, x, range(len(self)), self.training, self.random_state)

    # ---- backward and its plan ----

    def backward(
        self,
        gradient: Any,
        method: str = "auto",
        input_gradient: bool = False,
        *,
        of: Pass | None = None,
        stale: bool = False,
        state_gradients: Any = None,
    ) -> Array | None:
        """Fill `gradients` from the gradient by the output, (B, *output_shape), of the last pass.

        method  "bp" a VJP a layer; "linear" the scan, serially; "blelloch" the paper's algorithm 1;
                "hybrid" the computed schedule, or that of a number of levels; "auto" what the cost
                model takes to be the quickest. All but "bp" and "auto" need a plan (`use`) where a run
                of layers, inside of residual blocks too, has more than one Jacobian (`needs_plan`).
        of      the pass to go back through, if it is not the last one
        stale   whether that pass may be older than the parameters: its activations and their present values
                give the gradients then
        state_gradients  by the index of a recurrent layer, the gradient by its final state, of the states'
                shape; by default 0. Those by the initial states are then in the pass's `state_gradients`

        Returns the gradient by the input, (B, *input_shape), where `input_gradient` is set, else None; it
        is a buffer of the pass, which the pass's next backward writes over.
        Gradients are overwritten. What ran, and why, is in `last_backward`. Raises PassError without a
        forward pass or where the parameters have changed since, PlanError without a plan or where the
        plan lacks the method, ShapeError for a gradient of another shape or dtype, DeviceError where the
        device has too little memory, after which the call may be made again.
        """
        old = as_flag("backward", "stale", stale)
        current = current_pass(self._or_last(of), self.parameters, "backward", stale=old)
        wanted = as_flag("backward", "input_gradient", input_gradient)
        with self.device.naming_memory:
            result, self.last_backward = self._backward.run(
                current, gradient, method, wanted, state_gradients
            )
        return result

    def plan(
        self,
        levels: str | int = "auto",
        workers: int | None = None,
        batch_size: int = 256,
        *,
        schedules: Sequence[str] | None = None,
        memory_limit: int | None = None,
        partition: Partition | None = None,
        progress: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Plan:
        """Work out the scan's products and schedules offline; no value is computed.

        levels        of the hybrid schedule, or "auto": the schedule that the search finds quickest by the
                      device's cost model
        workers       devices that run products at once; by default 1, which is what this package runs on
        batch_size    the largest batch the scan will take
        schedules     some of "linear", "blelloch", "hybrid"; by default all that fit the memory limit
        memory_limit  bytes; by default three quarters of what the device has free
        partition     of the layers over ranks: see `bp.distribute`
        tell          called with a line on each schedule that the limit leaves out, and what would fit

        Raises PlanError where a schedule that was named needs more memory than the limit, and for arguments
        of another kind or range.
        """
        limit = memory_limit if memory_limit is not None else self.device.free_memory() * 3 // 4
        return build_plan(
            self.chains(),
            network=self.architecture.describe_scans(),
            fingerprint=self.fingerprint,
            schedules=schedules,
            levels=levels,
            workers=workers,
            batch_size=batch_size,
            itemsize=self.dtype.itemsize,
            memory_limit=limit,
            model=model_of(self.device.name),
            partition=partition,
            progress=as_flag("plan", "progress", progress, error=PlanError),
            tell=tell,
        )

    def use(self, plan: Plan) -> None:
        """Let `backward` scan by `plan`. Raises PlanMismatchError naming what differs."""
        self._backward.scans = RunScans(self.architecture, plan, self.device, self.dtype)

    # ---- analysis ----

    def transposed_jacobians(self, *, of: Pass | None = None) -> JacobianRecords:
        """CSR records of every layer's transposed Jacobian at the last pass, from the first layer on; of a
        recurrent layer one an inner layer, direction and step (`JacobianRecords.where` chooses).

        `gradient_norm` of a record is the norm of the gradient by that layer's output, or by the state after
        that step, in the last backward pass, None before one. Raises PassError without a forward pass,
        DeviceError where the device has too little memory.
        """
        given = self._or_last(of)
        return jacobian_records(current_pass(given, self.parameters, "transposed_jacobians"))

    def _or_last(self, given: Pass | None) -> Pass | None:
        return self.last_pass if given is None else given

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold layers and parameters; plan, passes and gradients are left out."""
        device = self.device.name if self.device is get_device(self.device.name) else self.device
        arguments = self.layers, self.input_shape, 0, self.dtype.name, device
        return _rebuild, (arguments, self.training, dict(self.random_state), self.state_dict())

    def __repr__(self) -> str:
        pairs = enumerate(zip(self.layers, self.shapes[1:], strict=True))
        lines = [f"  ({index}) {layer!r}: {shape}" for index, (layer, shape) in pairs]
        head = f"Sequential(input_shape={self.input_shape}, dtype={self.dtype}, device={self.device.name}"
        return "\n".join([head, *lines, ")"])


def _rebuild(
    arguments: tuple[Any, ...], training: bool, random_state: dict[str, int], parameters: Mapping[str, Any]
) -> Sequential:
    network = Sequential(*arguments)
    network.training, network.random_state = training, random_state
    network.load_state_dict(parameters)
    return network
