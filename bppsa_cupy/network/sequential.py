"""A network of layers: what it holds, forward passes, and backward passes by back-propagation or by scan."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from bppsa_cupy.arguments import as_choice, as_integer
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import ArgumentError, PlanError, ShapeError
from bppsa_cupy.layers import Context, Layer
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.stack import layer_records, walk
from bppsa_cupy.network.architecture import Architecture, Run, summarize
from bppsa_cupy.network.parameters import BufferSet, ParameterSet, check_names, in_order, without_masks
from bppsa_cupy.network.passes import (
    METHODS,
    BackwardReport,
    Pass,
    begin,
    checked_gradient,
    checked_states,
    current_pass,
    draw,
    own_pass,
    through,
)
from bppsa_cupy.network.run_scans import RunScans
from bppsa_cupy.plan import Budget, Partition, Plan, build_plan
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords

Self = TypeVar("Self", bound="Sequential")


class Sequential:
    """A network of layers, applied one after another.

    Parameters
    ----------
    layers : sequence of Layer
        The layers in order.
    input_shape : tuple of int
        Shape of one sample: (3, 32, 32) for images, (T, F) for sequences. (None, F) accepts any T.
    seed : int, default: 0
        Seed of the initial parameters, which follow PyTorch's default distributions.
    dtype : {"float32", "float64"}, default: "float32"
        Dtype of parameters, activations and gradients.
    device : {"auto", "cuda", "gpu", "host", "cpu"} or Device, default: "auto"
        "auto" uses a GPU if CuPy finds one, else the CPU. "gpu" means "cuda", and "host" and "cpu" the CPU.

    Attributes
    ----------
    parameters, gradients : ParameterSet
        Arrays by parameter name, such as "0.weight", as in PyTorch's Sequential.
    buffers : BufferSet
        Arrays that are not trained, such as the running statistics of batch normalization.
    last_pass : Pass or None
        The latest forward pass.
    last_backward : BackwardReport or None
        The method and the schedules of the latest backward pass.
    random_state : dict
        A key derived from the seed, and the number of training passes. Dropout uses both.

    Raises
    ------
    ShapeError
        If a layer does not accept the output shape of the previous layer, or `input_shape` is missing.
    ArgumentError
        If the layers are separate arguments instead of a list, or `seed` is not an integer of at least 0.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
    >>> net.forward(np.ones((2, 4), np.float32)).shape
    (2, 3)
    >>> sorted(net.parameters)
    ['0.bias', '0.weight']
    """

    #: The number of training passes on the device, (1,) int64, that a captured step draws from.
    passes_on_device: Array = None

    #: The scans by the plan in use; None without a plan.
    _scans: RunScans | None = None

    #: The pass whose buffers the latest backward pass wrote.
    _gone_back: weakref.ref[Pass] | None = None

    def __init__(
        self,
        layers: Sequence[Layer],
        input_shape: Sequence[int] | None = None,
        seed: int = 0,
        dtype: Any = "float32",
        device: str | Device = "auto",
    ) -> None:
        if isinstance(input_shape, Layer):
            raise ArgumentError(
                "Sequential got its layers as separate arguments: pass a list, "
                f"Sequential([{layers!r}, {input_shape!r}], input_shape=(3, 32, 32))"
            )
        if input_shape is None:
            raise ShapeError(
                "Sequential got no input_shape: pass the shape of one sample, such as (3, 32, 32) for "
                "images or (T, F) for sequences"
            )
        self._architecture = Architecture(layers, input_shape)
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:  # as of PyTorch's dtypes
            self.dtype = np.dtype(object)
        if self.dtype not in (np.float32, np.float64):
            raise ShapeError(f"Sequential got dtype={dtype!r}: pass float32 or float64")
        self.device = get_device(device)
        self.training = True
        self.last_pass: Pass | None = None
        self.last_backward: BackwardReport | None = None
        shapes = self.architecture.parameter_shapes()
        self.buffers = BufferSet(self.device, self.dtype, self.architecture.initial_buffers())
        self.parameters = ParameterSet(self.device, self.dtype, shapes)
        self.gradients = ParameterSet(self.device, self.dtype, shapes)
        generator = np.random.default_rng(
            as_integer("Sequential", "seed", seed, 0, None, error=ArgumentError)
        )
        self.parameters.assign(self.architecture.initialize(generator))
        self._take_masks(self.architecture)
        self.random_state = {"key": int(generator.integers(2**63)), "passes": 0}

    # ---- what the architecture says ----

    @property
    def architecture(self) -> Architecture:
        """The layers with their masks, shapes and Jacobians, in the current mode (training or evaluation)."""
        return self._architecture.in_mode(self.training)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers in order."""
        return self.architecture.layers

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input sample."""
        return self.architecture.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of one output sample."""
        return self.architecture.output_shape

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of one sample before the first layer and after each layer."""
        return self.architecture.shapes

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """The masks by parameter name, in the shape of the weight: True for remaining weights."""
        return self.architecture.masks

    def describe(self) -> dict[str, Any]:
        """Return the input shape, and type and arguments of every layer, as a JSON-serialisable dict."""
        return self.architecture.describe()

    def summary(self) -> str:
        """Return a table of the output shape, parameter count and Jacobian size of every layer.

        Notes
        -----
        The first call computes the patterns of the Jacobians, which takes a few seconds for VGG-11.

        Examples
        --------
        >>> import bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
        >>> print(net.summary())
        float32, input 4
        layer     output  parameters  Jacobian nnz  bytes
        0 Linear  3               15            12  116 B
        1 Tanh    3                –             3   40 B
        15 parameters, 60 B
        Jacobians of one sample: 15 entries, 156 B
        """
        return summarize(self.architecture, self.dtype)

    @property
    def by_kept_weights(self) -> tuple[str, ...]:
        """Names, such as "3.body.1", of the masked layers that store only their remaining weights."""
        return tuple(name.rpartition(".")[0] for name in self.architecture.kept_positions(self.device.name))

    def __len__(self) -> int:
        return len(self.layers)

    def train(self: Self) -> Self:
        """Switch to training mode and return the network."""
        self.training = True
        return self

    def eval(self: Self) -> Self:
        """Switch to evaluation mode and return the network."""
        self.training = False
        return self

    def __getitem__(self, index: Any) -> Any:
        """Return layer `index`, or a network of the layers of a slice that shares their parameters.

        Notes
        -----
        The network of a slice is a view: writing into its parameters, gradients or buffers writes into those
        of this network. New masks of this network end this.

        Examples
        --------
        >>> import bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
        >>> net[0]
        Linear(in_features=4, out_features=3, bias=True)
        >>> part = net[:1]
        >>> part.parameters["0.bias"][...] = 1
        >>> float(net.parameters["0.bias"][0])
        1.0
        """
        if not isinstance(index, slice):
            return self.layers[index]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ArgumentError(
                f"a network got a slice with step {step}: pass a slice with step 1, such as net[:3]"
            )
        shape, layers = self.shapes[start], range(start, stop)
        part = Sequential(self.layers[start:stop], shape, dtype=self.dtype, device=self.device)
        part.parameters.share(self.parameters, layers)
        part.gradients.share(self.gradients, layers)
        part.buffers.share(self.buffers, layers)
        part.training = self.training
        return part

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    # ---- ranks ----

    @property
    def writes(self) -> bool:
        """Whether this process writes files and prints messages. With several ranks, only one does."""
        return True

    def on_any_rank(self, flag: bool) -> bool:
        """Return whether `flag` is true on at least one rank. All ranks must call this method together."""
        return flag

    def own_samples(self, batch: int) -> slice:
        """Return the slice of a batch of `batch` samples that this process must load.

        The slice covers the whole batch, except in a network of `bp.distribute(…, over="batch")`.
        """
        return slice(0, batch)

    # ---- masks ----

    def set_masks(self, masks: Mapping[str, Any]) -> None:
        """Replace all masks of the network.

        Weights with mask 0 or False are set to 0 and stay 0 during training.

        Parameters
        ----------
        masks : mapping of str to array
            Masks by weight name, each with the shape of its weight. Other weights become dense.

        Raises
        ------
        ArgumentError
            If a name is not a weight of a Conv2d or Linear layer. The network is unchanged.
        ShapeError
            If a mask does not have the shape of its weight. The network is unchanged.
        DeviceError
            If the device has too little memory. The network is unchanged.

        Notes
        -----
        A plan made for other masks no longer fits: `use` raises PlanMismatchError.

        Examples
        --------
        >>> import numpy as np, bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(2, 2, bias=False)], input_shape=(2,), device="host")
        >>> net.set_masks({"0.weight": [[1, 0], [0, 1]]})
        >>> int(np.count_nonzero(net.parameters["0.weight"]))
        2
        """
        self._take_masks(self._architecture.with_masks(masks))
        self.parameters.apply_masks()
        self.parameters.changed()

    def _take_masks(self, masked: Architecture) -> None:
        """Take an architecture with other masks, and store parameters and gradients as these need."""
        positions = masked.kept_positions(self.device.name)
        self.parameters.set_masks(masked.masks, positions)
        self.gradients.set_masks({}, positions)
        self._architecture = masked

    # ---- contexts ----

    def new_context(self, index: int) -> Context:
        """Return a new `bp.Context` of layer `index` that shares the network's parameters and gradients."""
        arrays = self.parameters.arrays, self.gradients.arrays, self.buffers
        ctx = self.architecture.new_context(index, self.device, self.dtype, *arrays)
        ctx.training, ctx.draw = self.training, draw(self.random_state, index)
        return ctx

    def _contexts(self) -> list[Context]:
        return [self.new_context(index) for index in range(len(self))]

    # ---- forward ----

    def forward(
        self,
        x: Any,
        lengths: Any = None,
        states: Any = None,
        *,
        resets: Any = None,
        into: Pass | None = None,
        keep: bool = True,
    ) -> Array:
        """Return the output for a batch.

        Parameters
        ----------
        x : array, (B, *input_shape)
            A batch of B >= 1 samples. Lists are converted to the dtype of the network. Arrays of another
            dtype are converted, with one warning, if no value changes.
        lengths : array of int, (B,), optional
            Number of valid time steps of each sequence, from 1 to T. Recurrent layers skip later steps and
            output 0 there.
        states : dict of int to array, optional
            Initial states of recurrent layers by layer index: arrays (num_layers D, B, H) for D directions,
            or pairs (h, c) of such arrays for an LSTM. Zeros by default. With a single recurrent layer, the
            state may be passed without the dict.
        resets : array of bool, (B, T), optional
            True marks time steps before which the state is set to 0, for example the first step of an
            episode. The second direction of a bidirectional layer passes no state from a marked step to the
            step before it. Only for RNN, GRU, LSTM and CellLayer, and not together with lengths.
        into : Pass, optional
            An earlier pass whose arrays may be overwritten, including its output.
        keep : bool, default: True
            Whether to store what a backward pass needs. With False, recurrent layers need less memory.

        Returns
        -------
        array, (B, *output_shape)

        Raises
        ------
        ShapeError
            If a shape or dtype does not fit.
        ArgumentError
            If `states`, `lengths` or `resets` do not apply to the layers of the network.
        DeviceError
            If the device has too little memory.

        Notes
        -----
        The pass is stored as `last_pass`, and `last_pass.states` holds the final states. The pass holds a
        reference to `x`, so do not change `x` before the backward pass.

        Examples
        --------
        >>> import numpy as np, bppsa_cupy as bp
        >>> net = bp.Sequential([bp.RNN(3, 5)], input_shape=(None, 3), device="host")
        >>> net.forward(np.ones((2, 7, 3), np.float32), lengths=[7, 4]).shape
        (2, 7, 5)
        >>> net.last_pass.states[0].shape
        (1, 2, 5)
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
            batch = begin(current, x, lengths, states, keep, resets)
            y = current.output = self._through(current, batch)
        self.last_pass = current
        self.random_state["passes"] += self.training
        return y

    def __call__(self, x: Any, lengths: Any = None, states: Any = None) -> Array:
        """Call `forward`."""
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
        state_gradients: Any = None,
    ) -> Array | None:
        """Compute the gradients with respect to all parameters from the gradient with respect to the output.

        Parameters
        ----------
        gradient : array, (B, *output_shape)
            The gradient with respect to the output of the forward pass, in the dtype of the network.
        method : {"auto", "bp", "linear", "blelloch", "hybrid"}, default: "auto"
            "bp" computes one VJP per layer. The others are scans: "linear" is serial, "blelloch" is algorithm
            1 of Wang et al. 2020, and "hybrid" has the number of parallel levels that the plan selected.
            "auto" is "bp" on one device. Over ranks, "auto" is the planned method with the fewest
            multiply-adds on the critical path. Scans over two or more Jacobians need a plan (`use`). Over
            time, recurrent layers are serial with "bp" and "linear", chunked with "blelloch" and "hybrid".
        input_gradient : bool, default: False
            Whether to return the gradient with respect to the input.
        of : Pass, optional
            The forward pass to differentiate. Default: `last_pass`.
        state_gradients : dict of int to array, optional
            Gradients with respect to the final states of recurrent layers, by layer index. Zeros by default.
            `last_pass.state_gradients` then contains the gradients with respect to the initial states.

        Returns
        -------
        array, (B, *input_shape), or None
            The gradient with respect to the input, or None without `input_gradient`. The next backward pass
            overwrites the array.

        Raises
        ------
        PassError
            If this network has no stored forward pass, or the parameters have changed since that pass.
        PlanError
            If the method needs a plan and none is in use, or the plan lacks the method.
        ShapeError
            If a gradient does not have the shape and dtype of the output or state.
        ArgumentError
            If `method` is unknown, or `state_gradients` does not fit the recurrent layers.
        DeviceError
            If the device has too little memory. You may call `backward` again.

        Notes
        -----
        `gradients` is overwritten, not accumulated. `last_backward` describes the method that was used.

        Examples
        --------
        >>> import numpy as np, bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
        >>> y = net.forward(np.ones((2, 4), np.float32))
        >>> net.backward(np.ones_like(y), input_gradient=True).shape
        (2, 4)
        >>> net.gradients["0.bias"].tolist()
        [2.0, 2.0, 2.0]
        """
        latest = self.last_pass if of is None else of
        current = current_pass(latest, self.parameters, "backward")
        with self.device.naming_memory:
            current.stream = self.device.follow(current.stream)
            return self._run_backward(current, gradient, method, input_gradient, state_gradients)

    def _run_backward(
        self, current: Pass, output_gradient: Any, method: str, input_gradient: bool, state_gradients: Any
    ) -> Array | None:
        """`backward` through a pass that is checked, with its report."""
        if method not in METHODS:
            as_choice("backward", "method", method, METHODS)
        gradient = checked_gradient(current, output_gradient)
        by_states = {}
        if state_gradients is not None:
            by_states = checked_states(
                current, state_gradients, "the gradient with respect to the final state"
            )
        requested = method
        if method != "bp" and self._scans is not None:
            self._scans = self._scans.fitting(current.architecture)
        if method == "auto":
            method = "bp" if self._scans is None else self._scans.choose(current.batch)
        last = None if self._gone_back is None else self._gone_back()
        if last is not None and last.output_gradients:  # their buffers are about to be written over
            last.forget_gradients()
        self._gone_back = weakref.ref(current)
        for index, ctx in enumerate(current.layers):
            ctx.method = requested
            if isinstance(ctx, RecurrentContext):
                ctx.final_gradient = by_states.get(index)
        result = self._go_back(current, gradient, method, input_gradient)
        schedules = () if self._scans is None or method == "bp" else self._scans.describe()
        self.last_backward = BackwardReport(method, schedules, self._gone_back)
        return result

    def _go_back(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """A VJP a layer, or scans over the runs and VJPs over what lies between them; the gradient with
        respect to the input."""
        architecture, by_outputs = current.architecture, current.output_gradients
        if method == "bp":
            return architecture.backward(current.layers, gradient, input_gradient, by_outputs)
        result: Array | None = gradient
        for part, layers in architecture.back():
            if result is None:
                break
            if part is None or (scans := self._scans_of(part, method)) is None:
                result = architecture.backward(current.layers, result, input_gradient, by_outputs, layers)
                continue
            wanted = architecture.wants(part.start, input_gradient)
            result = scans.back_through(part, current, result, method, wanted)
        return result

    def _scans_of(self, part: Run, method: str) -> RunScans | None:
        """The scans of a run; None without a plan for one element. Raises PlanError for several elements."""
        if self._scans is None and len(part.elements) > 1:
            raise PlanError(
                f"method {method!r} needs a plan, but no plan is in use: call net.use(net.plan()), or "
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
    ) -> Plan:
        """Plan the sparse products and the schedules with which `backward` scans over layers.

        Parameters
        ----------
        levels : int or "auto", default: "auto"
            Number of parallel levels of the hybrid schedule. "auto" minimizes the multiply-adds on the
            critical path (from start to end of the schedule, with `workers` products at a time).
        workers : int, optional
            Number of devices that compute products at the same time. Default: 1.
        batch_size : int, default: 256
            The largest batch size that the scan accepts.
        schedules : sequence of {"linear", "blelloch", "hybrid"}, optional
            The schedules to plan. Default: all that fit into `memory_limit`.
        memory_limit : int, optional
            Largest size of the values of a scan in bytes. Default: three quarters of the free memory.
        partition : Partition, optional
            The layers of each rank (see `bp.distribute`). By default the plan is for one device.
        progress : bool, default: False
            Whether to show a progress bar.

        Returns
        -------
        Plan

        Raises
        ------
        PlanError
            If a requested schedule exceeds the limit, or an argument is out of range.

        Examples
        --------
        >>> import bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
        >>> net.use(net.plan(batch_size=8))
        >>> len(net.plan_in_use.chains)
        1
        """
        limit = memory_limit if memory_limit is not None else self.device.free_memory() * 3 // 4
        return build_plan(
            self.architecture.chains(),
            self.architecture.describe_scans(),
            Budget(batch_size, self.dtype.itemsize, 1 if workers is None else workers, limit),
            schedules=schedules,
            levels=levels,
            partition=partition,
            vjps=True,
            progress=progress,
        )

    def use(self, plan: Plan) -> None:
        """Set the plan that the scans of `backward` use.

        Parameters
        ----------
        plan : Plan
            A plan from `plan` or `Plan.load`.

        Raises
        ------
        PlanMismatchError
            If the plan was made for another network. The message names what differs.
        """
        self._scans = RunScans(self.architecture, plan, self.device, self.dtype)

    @property
    def plan_in_use(self) -> Plan | None:
        """The plan that `use` has set, or None."""
        return None if self._scans is None else self._scans.plan

    # ---- analysis ----

    def transposed_jacobians(self, *, of: Pass | None = None) -> JacobianRecords:
        """Return the transposed Jacobian of every layer for the last forward pass, in CSR form.

        Parameters
        ----------
        of : Pass, optional
            The forward pass. Default: `last_pass`.

        Returns
        -------
        JacobianRecords
            One record per layer, also inside residual blocks. Recurrent layers have one record per inner
            layer, direction and time step. Three kinds of layers have no record: Flatten, batch normalization
            with batch statistics, and non-recurrent layers on sequences of open length (T is None in
            `shapes`). The `gradient_norm` of a record is the norm of the gradient with respect to the layer's
            output in the last backward pass. It is None before that pass and for recurrent layers.

        Raises
        ------
        PassError
            If this network has no stored forward pass, or the parameters have changed since that pass.
        DeviceError
            If the device has too little memory.

        Examples
        --------
        >>> import numpy as np, bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
        >>> y = net.forward(np.ones((2, 4), np.float32))
        >>> [record.pattern.shape for record in net.transposed_jacobians()]
        [(4, 3), (3, 3)]
        """
        latest = self.last_pass if of is None else of
        current = current_pass(latest, self.parameters, "transposed_jacobians")
        with self.device.naming_memory:
            return JacobianRecords(_records(current))

    # ---- state ----

    def replayed(self, current: Pass, report: BackwardReport) -> None:
        """Set `last_pass` and `last_backward` after a step that ran without `forward` and `backward`."""
        self.last_pass, self.last_backward = current, report
        if self.training:
            self.random_state["passes"] += 1
        self.parameters.changed()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return copies of parameters and buffers on the host, in PyTorch's order.

        Returns
        -------
        dict of str to numpy.ndarray
            Dense arrays by parameter or buffer name. Masked weights are 0.

        Examples
        --------
        >>> import bppsa_cupy as bp
        >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
        >>> {name: array.shape for name, array in net.state_dict().items()}
        {'0.weight': (3, 4), '0.bias': (3,)}
        """
        self.parameters.apply_masks()
        arrays = {**self.parameters.to_host(), **self.buffers.to_host()}
        return {name: arrays[name] for name in self.architecture.state_names}

    def load_state_dict(self, arrays: Mapping[str, Any], *, by_order: bool = False) -> None:
        """Set parameters and buffers, for example from a PyTorch state dict.

        Parameters
        ----------
        arrays : mapping of str to array
            Arrays with the names and shapes of `state_dict()`.
        by_order : bool, default: False
            Whether to match layers by position instead of name, for example for a single torch.nn.LSTM.
            Within a layer, arrays are matched by the last part of their names if these parts equal those of
            the layer, and otherwise by position.

        Raises
        ------
        CheckpointError, ShapeError
            If names or shapes differ. The network is unchanged.
        DeviceError
            If the device has too little memory. The network is unchanged.

        Notes
        -----
        Masked weights are set to 0. The arrays "weight_orig" and "weight_mask" of torch.nn.utils.prune set a
        weight and its mask.

        Examples
        --------
        >>> import bppsa_cupy as bp
        >>> a, b = (bp.Sequential([bp.Linear(4, 3)], (4,), seed=seed, device="host") for seed in (0, 1))
        >>> a.load_state_dict(b.state_dict())
        >>> bool((a.parameters["0.bias"] == b.parameters["0.bias"]).all())
        True
        """
        dense, masks = without_masks(arrays)
        named = in_order(self.architecture, dense) if by_order else dense
        check_names(self.architecture, named)
        if masks:
            names = {id(array): name for name, array in named.items()}
            named_masks = {names[id(dense[name])]: mask for name, mask in masks.items()}
            self._architecture.with_masks({**self.masks, **named_masks})
        running = self.buffers.converted({name: named[name] for name in self.buffers})
        self.parameters.assign({name: named[name] for name in self.parameters})
        self.buffers.assign(running)
        if masks:
            self.set_masks({**self.masks, **named_masks})

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


def _records(current: Pass) -> Iterator[JacobianRecord]:
    """Yield the records of all layers, with those of residual blocks in their places."""
    architecture = current.architecture
    for place in walk(architecture, current.layers, current.output_gradients):
        if place.ctx is not None and place.ctx.saved:  # else the layer of another rank
            index, _, path = place.path.partition(".")
            yield from layer_records(
                place.layer, place.ctx, place.input_shape,
                architecture.operator(place.layer, place.input_shape), current.batch,
                index=int(index), path=path, gradient=place.gradient,
            )  # fmt: skip
