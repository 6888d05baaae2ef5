"""A network of layers: what it holds, forward passes, and backward passes by back-propagation or by scan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from bppsa_cupy.arguments import as_flag, as_instance, as_integer, is_one_of
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.layers import Context, Layer
from bppsa_cupy.layers.layer_records import layer_records
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.residual import ResidualContext
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.backward import METHODS, BackwardReport, checked_gradient
from bppsa_cupy.network.buffers import BufferSet
from bppsa_cupy.network.forward import Steps, begin, checked_states, draw, through
from bppsa_cupy.network.parameters import ParameterSet, real_dtype
from bppsa_cupy.network.passes import Pass, current_pass, own_pass
from bppsa_cupy.network.run_scans import RunScans
from bppsa_cupy.network.sections import Run, Section
from bppsa_cupy.network.state import in_order, load_state, matched, state_of, without_masks
from bppsa_cupy.network.summary import Summary, summarize
from bppsa_cupy.plan import Budget, Chain, Partition, Plan, build_plan
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords

Self = TypeVar("Self", bound="Sequential")


class Sequential:
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

    #: The number of training passes on the device, (1,) int64, that a captured step draws from.
    passes_on_device: Array = None

    #: The scans by the plan in use; None without a plan.
    _scans: RunScans | None = None

    #: The pass whose buffers the latest backward pass wrote.
    _gone_back: weakref.ref[Pass] | None = None

    #: Whether pruned weights are stored by their kept values where layers compute with lists of them.
    _stores_kept = True

    #: Of a view, net[:3]: the network, the layers there, and the network's architecture that these are of.
    _whole: tuple[Sequential, range, Architecture] | None = None

    def __init__(
        self,
        layers: Sequence[Layer],
        input_shape: Sequence[int] | None = None,
        seed: int = 0,
        dtype: Any = "float32",
        device: str | Device = "auto",
    ) -> None:
        if isinstance(input_shape, Layer):
            raise ShapeError(
                "Sequential got its layers one by one: it takes a list of them, as "
                f"Sequential([{layers!r}, {input_shape!r}], input_shape=(3, 32, 32))"
            )
        if input_shape is None:
            raise ShapeError(
                "Sequential got no input_shape: it takes the shape of one sample, as (3, 32, 32) of images, "
                "(T, F) of sequences"
            )
        self._architecture = Architecture(layers, input_shape)
        self.dtype = real_dtype(dtype)
        self.device = get_device(device)
        self.training = True
        self.last_pass: Pass | None = None
        self.last_backward: BackwardReport | None = None
        shapes = self.architecture.parameter_shapes()
        self.buffers = BufferSet(self.device, self.dtype, self.architecture.initial_buffers())
        self.parameters = ParameterSet(self.device, self.dtype, shapes)
        self.gradients = ParameterSet(self.device, self.dtype, shapes)
        generator = np.random.default_rng(as_integer("Sequential", "seed", seed, 0, None))
        self.parameters.assign(self.architecture.initialize(generator))
        self._take_masks(self.architecture)
        self.random_state = {"key": int(generator.integers(2**63)), "passes": 0}

    # ---- what the architecture says ----

    @property
    def architecture(self) -> Architecture:
        """The layers with their masks, their shapes and Jacobians, in the present mode; `set_masks` makes
        another one."""
        if self._whole is not None and self._whole[0]._architecture is not self._whole[2]:
            self._whole = (*self._whole[:2], self._whole[0]._architecture)
            self._architecture = self._whole[2].part(self._whole[1])
        return self._architecture.in_mode(self.training)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.architecture.layers

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.architecture.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.architecture.output_shape

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.architecture.shapes

    @property
    def jacobians(self) -> tuple[Any, ...]:
        return self.architecture.jacobians

    @property
    def masks(self) -> dict[str, np.ndarray]:
        return self.architecture.masks

    @property
    def needs_plan(self) -> bool:
        return self.architecture.needs_plan

    @property
    def fingerprint(self) -> str:
        return self.architecture.fingerprint

    def describe(self) -> dict[str, Any]:
        return self.architecture.describe()

    def summary(self) -> Summary:
        """Every layer's shapes, parameters and Jacobian; as text, `print(net.summary())`, a table. Jacobians'
        patterns that were not asked for yet are made: of a VGG-11 in some seconds."""
        return summarize(self.architecture, self.dtype)

    @property
    def by_kept_weights(self) -> tuple[str, ...]:
        """The layers, by the paths that name their parameters, "3.body.1", that go by the list of the weights
        that their masks keep, by a fixed rule of how many there are."""
        return tuple(name.rpartition(".")[0] for name in self.architecture.kept(self.device.name))

    def chains(self) -> tuple[Chain, ...]:
        return self.architecture.chains()

    def __len__(self) -> int:
        return len(self.layers)

    def train(self: Self) -> Self:
        """Training mode, for layers that differ in it."""
        self.training = True
        return self

    def eval(self: Self) -> Self:
        """Evaluation mode."""
        self.training = False
        return self

    # ---- layers, and parts ----

    @overload
    def __getitem__(self, index: int) -> Layer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> Layer | Sequential:
        """Layer `index`, or a network of consecutive layers, net[:3], which is a view.

        A view shares parameters, gradients, buffers, masks and the random state: a step of an optimizer on
        `net[:3].parameters` changes `net`, and the backward pass of either overwrites the same gradients.
        The view has its own passes, plan, and mode, which is that of `net` at first. Its layers and names
        count from 0, so `net[3:]` calls layer 3 "0". A copy or pickle of it is an independent network.
        Raises ShapeError for layers that do not follow each other.
        """
        if isinstance(index, slice):
            return self._part(_consecutive(index, len(self)))
        return self.layers[index]

    def _part(self, layers: range) -> Sequential:
        """A view of these layers."""
        if self._whole is not None:
            net, outer, _ = self._whole
            return net._part(outer[layers.start : layers.stop])
        part = Sequential.__new__(Sequential)
        part._whole = self, layers, self._architecture
        part._architecture = self._architecture.part(layers)
        part.dtype, part.device, part.training = self.dtype, self.device, self.training

        def names(of: Iterable[str]) -> dict[str, str]:
            """The names here by those in the view."""
            split = (name.partition(".") for name in of)
            return {f"{index}.{rest}": f"{int(index) + layers.start}.{rest}" for index, _, rest in split}

        shapes = names(part._architecture.parameter_shapes())
        part.parameters, part.gradients = self.parameters.part(shapes), self.gradients.part(shapes)
        part.buffers = self.buffers.part(names(part._architecture.initial_buffers()))
        part.random_state = self.random_state
        part.last_pass, part.last_backward = None, None
        return part

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    # ---- ranks ----

    @property
    def writes(self) -> bool:
        """Whether this process writes files and speaks; of several ranks one alone does."""
        return True

    def on_any_rank(self, flag: bool) -> bool:
        """Whether the flag is true here, or on another of several ranks; collective."""
        return flag

    def own_samples(self, batch: int) -> slice:
        """Which samples of a batch this process reads; of several ranks that share batches a part."""
        return slice(0, batch)

    # ---- masks ----

    def set_masks(self, masks: Mapping[str, Any]) -> None:
        """Give weights these masks, by parameter name, in place of all the network has: those that are 0 or
        False in a mask are set to 0 and stay 0, through the steps of an optimizer whose momentum is older
        too. What the caller sets in place no pass reads; it is set back in `state_dict`.

        A plan made for other masks does not fit any more, and raises PlanMismatchError when it is used.
        Raises ShapeError for a name that is no weight of a Conv2d or Linear, and for a mask of another shape,
        DeviceError where the device has too little memory; nothing is set then.
        """
        takes = "arrays by the weight's name"
        as_instance("set_masks", "masks", masks, Mapping, takes)  # type: ignore[type-abstract]
        self._take_masks(self._with_masks(masks))
        if self._scans is not None:
            self._scans.clear()
        self.parameters.apply_masks()
        self.parameters.changed()

    def _with_masks(self, masks: Mapping[str, Any]) -> Architecture:
        """The architecture with these masks in place of its own. Raises ShapeError."""
        if self._whole is not None:
            first, stop = self._whole[1].start, self._whole[1].stop
            raise ShapeError(
                f"masks of {', '.join(masks) or 'nothing'} were given to net[{first}:{stop}], a part of a "
                "network: set them, or prune, on the whole network, whose parameters these are"
            )
        return self._architecture.with_masks(masks)

    def described_with_masks(self, masks: Mapping[str, Any]) -> dict[str, Any]:
        """`describe()` as it would be with these masks, which `set_masks` takes or refuses."""
        return self._with_masks(masks).describe()

    def _take_masks(self, masked: Architecture) -> None:
        """Take an architecture with other masks, and store parameters and gradients as these need."""
        kept = masked.kept(self.device.name) if self._stores_kept else {}
        self.parameters.set_masks(masked.masks, kept)
        self.gradients.set_masks({}, kept)
        self._architecture = masked

    # ---- contexts ----

    def new_context(self, index: int, architecture: Architecture | None = None) -> Context:
        """A new context of one layer, on the network's parameters and gradients; of another architecture of
        the same layers where one is given."""
        arrays = self.parameters.arrays, self.gradients.arrays, self.parameters.masks, self.buffers
        ctx = (architecture or self.architecture).new_context(index, self.device, self.dtype, *arrays)
        ctx.training, ctx.draw = self.training, draw(self.random_state, index)
        return ctx

    def _contexts(self) -> list[Context]:
        return [self.new_context(index) for index in range(len(self))]

    # ---- forward ----

    def forward(
        self, x: Any, lengths: Any = None, states: Any = None, *, into: Pass | None = None, keep: bool = True
    ) -> Array:
        """The output for a batch `x` (B, *input_shape), B >= 1. A list of numbers takes the network's
        dtype; an array of another one is converted where every value stays what it is, with a warning the
        first time.

        lengths  of sequences (B, T, F): (B,) integers from 1 to T, where each sample ends; by default at T.
                 Recurrent layers take no step after it, and put out 0 there
        states   recurrent layers' states before the first step, by the layer's index: (num_layers D, B, H),
                 for an LSTM the pair of h and c; by default 0. A single recurrent layer may be given
                 its state alone. Those after the last step are then in `last_pass.states`

        keep     whether `backward` or `transposed_jacobians` may follow. Without it recurrent layers keep
                 outputs and last states alone: they take a part of the steps at a time, in the same memory

        The pass is kept as `last_pass`. `into` names an earlier pass whose arrays may be written
        over, among them the output it returned; without it the pass takes new arrays. `x` is kept by
        reference until the backward pass. Raises ShapeError naming both shapes or dtypes, DeviceError where
        the device has too little memory.
        """
        with self.device.naming_memory:
            current = (
                Pass(self.parameters, self.architecture, self._contexts())
                if into is None
                else own_pass(into, self.parameters)
            )
            if current.architecture is not self.architecture:  # the pass is older than the masks, or the mode
                current.architecture, current.layers = self.architecture, self._contexts()
            current.stream = self.device.follow(current.stream)
            given = begin(current, x, lengths, states, keep)
            y = current.output = self._through(current, given)
        self.last_pass = current
        self.random_state["passes"] += self.training
        return y

    def steps(self) -> Steps:
        """The network a step at a time, for generation: see `Steps`."""
        return Steps(self.architecture, self.new_context)

    def __call__(self, x: Any, lengths: Any = None, states: Any = None) -> Array:
        """`forward`, as PyTorch's modules are called."""
        return self.forward(x, lengths, states)

    def _through(self, current: Pass, x: Array) -> Array:
        """The output of all layers."""
        state = self.random_state
        if self.passes_on_device is not None:
            state = {**state, "passes": self.passes_on_device}
        return through(current, x, range(len(self)), self.training, state)

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
                "hybrid" the plan's number of levels; "auto" is "bp" on one device, and over ranks the
                method of the plan with the fewest multiply-adds on the critical path. All but "bp" and
                "auto" need a plan (`use`) where a run of layers has more than one Jacobian
                (`needs_plan`). Residual blocks are crossed by their VJPs.
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
        if stale is not False or input_gradient is not False:
            stale = as_flag("backward", "stale", stale)
            input_gradient = as_flag("backward", "input_gradient", input_gradient)
        given = self.last_pass if of is None else of
        current = current_pass(given, self.parameters, "backward", stale=stale)
        with self.device.naming_memory:
            current.stream = self.device.follow(current.stream)
            return self._run_backward(current, gradient, method, input_gradient, state_gradients)

    def _run_backward(
        self, current: Pass, given: Any, method: str, input_gradient: bool, state_gradients: Any
    ) -> Array | None:
        """`backward` through a pass that is checked, with its report."""
        if not is_one_of(method, METHODS):
            raise PlanError(f"method {method!r} was asked for: the methods are {', '.join(METHODS)}")
        gradient = checked_gradient(current, given)
        by_states = checked_states(current, state_gradients, "the gradient by the final state")
        requested, reason = method, "as asked for"
        if method != "bp" and self._scans is not None:
            self._scans = self._scans.fitting(current.architecture)
        if method == "auto":
            method, reason = "bp", "no plan is in use"
            if self._scans is not None:
                method, reason = self._scans.choose(current.batch)
        launched = self.device.launched
        before = dict(launched)
        last = None if self._gone_back is None else self._gone_back()
        if last is not None:  # the buffers that its gradients view are about to be written over
            last.forget_gradients()
        self._gone_back = weakref.ref(current)
        for index, ctx in enumerate(current.layers):
            ctx.method = requested
            if isinstance(ctx, RecurrentContext):
                ctx.final_gradient = by_states.get(index)
        result = self._go_back(current, gradient, method, input_gradient)
        counts = {name: count - before.get(name, 0) for name, count in launched.items()}
        self.last_backward = BackwardReport(
            method=method,
            requested=requested,
            reason=reason,
            schedules=() if self._scans is None or method == "bp" else self._scans.describe(),
            launches={name: count for name, count in counts.items() if count},
            device=self.device.name,
            backward_ways=tuple(
                line for walker in current.walkers() for line in walker.labelled(walker.ctx.backward_ways)
            ),
        )
        return result

    def _go_back(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """A VJP a layer, or scans over the runs and VJPs over what lies between them; the gradient by the
        input."""
        architecture, by_outputs = current.architecture, current.output_gradients
        if method == "bp":
            return architecture.backward(current.layers, gradient, input_gradient, by_outputs)
        result: Array | None = gradient
        for run, layers in architecture.back():
            if result is None:
                break
            if run is not None and (scans := self._scans_of(run, method)) is not None:
                wanted = architecture.wants(run.start, input_gradient)
                result = scans.back_through(run, current, result, method, wanted)
            else:
                result = architecture.backward(current.layers, result, input_gradient, by_outputs, layers)
        return result

    def _scans_of(self, run: Run, method: str) -> RunScans | None:
        """The scans, where they go through a run; None where it is crossed by its one element's VJP. Raises
        PlanError where there is something to scan and no plan."""
        if self._scans is None and len(run.elements) > 1:
            raise PlanError(
                f"method {method!r} scans by a plan and none is in use: net.use(net.plan()), or "
                "net.use(Plan.load(path)) with a file of bppsa-plan build"
            )
        return self._scans

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

        levels        of the hybrid schedule, or "auto": the number with the fewest multiply-adds on the
                      critical path
        workers       devices that run products at once; by default 1, which is what this package runs on
        batch_size    the largest batch the scan will take
        schedules     some of "linear", "blelloch", "hybrid"; by default all that fit the memory limit
        memory_limit  bytes; by default three quarters of what the device has free
        partition     of the layers over ranks: see `bp.distribute`
        tell          called with a line on each schedule that the limit leaves out

        Raises PlanError where a schedule that was named needs more memory than the limit, and for arguments
        of another kind or range.
        """
        limit = memory_limit if memory_limit is not None else self.device.free_memory() * 3 // 4
        return build_plan(
            self.chains(),
            self.architecture.describe_scans(),
            Budget(batch_size, self.dtype.itemsize, 1 if workers is None else workers, limit),
            schedules=schedules,
            levels=levels,
            partition=partition,
            vjps=True,
            progress=as_flag("plan", "progress", progress, error=PlanError),
            tell=tell,
        )

    def use(self, plan: Plan) -> None:
        """Let `backward` scan by `plan`. Raises PlanMismatchError naming what differs."""
        self._scans = RunScans(self.architecture, plan, self.device, self.dtype)

    @property
    def plan_in_use(self) -> Plan | None:
        """The plan that `use` has set; None before."""
        return None if self._scans is None else self._scans.plan

    # ---- analysis ----

    def transposed_jacobians(self, *, of: Pass | None = None) -> JacobianRecords:
        """CSR records of every layer's transposed Jacobian at the last pass, from the first layer on; of a
        recurrent layer one an inner layer, direction and step (`JacobianRecords.where` chooses).

        `gradient_norm` of a record is the norm of the gradient by that layer's output, or by the state after
        that step, in the last backward pass, None before one. Raises PassError without a forward pass,
        DeviceError where the device has too little memory.
        """
        given = self.last_pass if of is None else of
        current = current_pass(given, self.parameters, "transposed_jacobians")
        with self.device.naming_memory:
            section = current.architecture.section
            return JacobianRecords(
                _section_records(section, current.layers, current.output_gradients, current.batch)
            )

    # ---- state ----

    def replayed(self, current: Pass, report: BackwardReport) -> None:
        """Note that a graph of a whole training step was launched, which goes through this pass."""
        self.last_pass, self.last_backward = current, report
        if self.training:
            self.random_state["passes"] += 1
        self.parameters.changed()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the parameters and buffers on the host, by name, in PyTorch's order; masked weights
        are 0."""
        return state_of(self.architecture, self.parameters, self.buffers)

    def load_state_dict(self, arrays: Mapping[str, Any], *, by_order: bool = False) -> None:
        """Set parameters and buffers from arrays of the same names and shapes, PyTorch's state dicts among
        them. Where a single layer has parameters or buffers, the names may be that layer's own:
        `torch.nn.LSTM(…).state_dict()`.

        With `by_order` layers are paired one after another: a state dict of the same network, whose modules
        have other names. Arrays of one layer are paired by their last names or by shape. Masked weights are
        set to 0. What torch.nn.utils.prune has pruned, "weight_orig" and "weight_mask", is taken as weights
        and their masks. Raises CheckpointError or ShapeError, and DeviceError where the device has too little
        memory; sets nothing then.
        """
        ordered = as_flag("load_state_dict", "by_order", by_order)
        whole, masks = without_masks(arrays)
        named = (in_order if ordered else matched)(self.architecture, whole)
        if masks:
            own = {id(array): name for name, array in named.items()}
            given = {own[id(whole[name])]: mask for name, mask in masks.items()}
            self._with_masks({**self.masks, **given})
        load_state(self.architecture, self.parameters, self.buffers, named)
        if masks:
            self.set_masks({**self.masks, **given})

    # ---- copies, text ----

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


def _consecutive(index: slice, count: int) -> range:
    """The layers of a slice, of `count` there are. Raises ShapeError where they do not follow each other."""
    for name in ("start", "stop", "step"):
        if getattr(index, name) is not None:
            as_integer("net[…]", name, getattr(index, name))
    chosen = range(count)[index]
    if chosen.step != 1:
        shown = ":".join("" if at is None else str(at) for at in (index.start, index.stop, index.step))
        raise ShapeError(
            f"net[{shown}] takes layers {list(chosen)} of {count}: a part of a network is of layers "
            "that follow each other, as net[:3]"
        )
    return chosen


def _section_records(
    section: Section, contexts: Sequence[Context], by_outputs: Mapping[int, Array], batch: int
) -> Iterator[JacobianRecord]:
    """Those of the layers of a section, in order, with those inside of residual blocks in their places."""
    for index, ctx in enumerate(contexts):
        if not ctx.saved:  # another rank's layer
            continue
        outer = index if section.outermost is None else section.outermost
        path = "" if section.outermost is None else f"{section.place}{index}".removeprefix(f"{outer}.")
        yield from layer_records(
            section.stack.layers[index], ctx, section.stack.shapes[index], section.jacobians[index], batch,
            index=outer, path=path, gradient=by_outputs.get(index),
        )  # fmt: skip
        if isinstance(ctx, ResidualContext):
            for name, inner in section.branches[index].items():
                yield from _section_records(inner, ctx.inner[name], ctx.by_outputs.get(name, {}), batch)
