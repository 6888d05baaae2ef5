"""A training step as one call: on a GPU one CUDA graph per input shape, on the host a plain loop body."""

from __future__ import annotations

import operator
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance, is_one_of
from bppsa_cupy.conversion import is_on_gpu
from bppsa_cupy.data.dataset import counted_labels
from bppsa_cupy.devices import Array, get_device
from bppsa_cupy.devices.cuda import CudaDevice, Replay
from bppsa_cupy.distributed import BatchSequential
from bppsa_cupy.errors import ArgumentError, DeviceError
from bppsa_cupy.layers.residual import walk
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.network.layout import lay_out
from bppsa_cupy.network.passes import METHODS, Pass, take_input
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.timescan.lengths import check_lengths
from bppsa_cupy.training.losses import check_smoothing, checked_targets, cross_entropy, mean_cross_entropy
from bppsa_cupy.training.optimizers import Optimizer, check_max_norm, clip_grad_norm

#: Input shapes whose graphs stay, and pinned blocks per shape, which steps use in turn.
MOST_SHAPES, BLOCKS = 8, 2

Loss = Callable[..., tuple[Array, Array]]
#: Loss, whether the update was left out, and the gradients' norm.
Values = tuple[float, bool, float | None]


class StepResult:
    """Results of a training step. Reading a value waits for the device.

    Attributes
    ----------
    loss : float
        The mean loss before the update.
    blocked : bool
        Whether the update was skipped because a gradient was NaN or infinite.
    gradient_norm : float or None
        The norm of all gradients before clipping; None without clipping.
    """

    __slots__ = ("_read", "_values")

    def __init__(self, read: Callable[[], Values]) -> None:
        self._read = read
        self._values: Values | None = None

    def settle(self) -> Values:
        """Wait for the values and keep them."""
        if self._values is None:
            self._values = self._read()
        return self._values

    @property
    def loss(self) -> float:
        return self.settle()[0]

    @property
    def blocked(self) -> bool:
        return self.settle()[1]

    @property
    def gradient_norm(self) -> float | None:
        return self.settle()[2]


class CapturedStep:
    """Forward pass, loss, backward pass, clipping and update as one call.

    On a GPU the second step of each input shape is captured as a CUDA graph. From then on a step is one
    copy to the GPU, one graph launch and one copy back. The first step of a shape runs launch by launch: it
    compiles kernels and creates the cuBLAS handle. On the host a step runs the layers one after another.

    Parameters
    ----------
    network : Sequential
        The network to train, in its present mode.
    optimizer : Optimizer
        An optimizer of `network.parameters`. Its hyper-parameters and `lr_factor` may change between steps.
    loss : callable, default: bp.cross_entropy
        Called as `loss(scores, labels)`, it returns the loss and its gradient with respect to the scores, as
        `bp.mse_loss` does. On a GPU it must not read values on the host.
    method : str, default: "auto"
        The method of `network.backward`.
    clip : float, optional
        The largest norm of all gradients together, as in `bp.clip_grad_norm`.
    label_smoothing : float, default: 0.0
        The smoothing of `bp.cross_entropy`.
    gradient_hook : callable, optional
        Called with the network after each backward pass. Steps with a hook are not captured.

    Attributes
    ----------
    ran : str
        How the latest step ran: "one CUDA graph", or "launch by launch" with the reason.

    Notes
    -----
    Newton iterations, masked layers that multiply by all weights, gradient hooks and networks
    over ranks are not captured. If a capture fails, the step
    warns (RuntimeWarning) and runs launch by launch. A step that raises an error changes neither parameters
    nor the optimizer's state. Memory: each of the 8 latest input shapes has its own activations.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Flatten(), bp.Linear(4, 3)], input_shape=(2, 2), device="host")
    >>> step = bp.CapturedStep(net, bp.SGD(net.parameters, lr=0.1))
    >>> x, labels = np.ones((5, 2, 2), np.float32), np.array([0, 1, 2, 0, 1])
    >>> step(x, labels).loss > step(x, labels).loss
    True
    """

    def __init__(
        self,
        network: Sequential,
        optimizer: Optimizer,
        loss: Loss = cross_entropy,
        *,
        method: str = "auto",
        clip: float | None = None,
        label_smoothing: float = 0.0,
        gradient_hook: Callable[[Sequential], None] | None = None,
    ) -> None:
        owner = type(self).__name__
        as_instance(owner, "network", network, Sequential, "a Sequential", error=ArgumentError)
        takes = "an optimizer, such as bp.SGD(network.parameters)"
        as_instance(owner, "optimizer", optimizer, Optimizer, takes, error=ArgumentError)  # type: ignore[type-abstract]
        if optimizer.parameters is not network.parameters:
            raise ArgumentError("the optimizer updates another network: create it from network.parameters")
        if not is_one_of(method, METHODS):
            raise ArgumentError(f"CapturedStep got method={method!r}: pass one of {', '.join(METHODS)}")
        check_smoothing(label_smoothing)
        if label_smoothing and loss is not cross_entropy:
            raise ArgumentError("label_smoothing needs bp.cross_entropy: omit it with another loss")
        self.network, self.optimizer, self.loss, self.method = network, optimizer, loss, method
        self.clip = None if clip is None else check_max_norm(clip)
        self.label_smoothing, self.gradient_hook = label_smoothing, gradient_hook
        self.ran = "no step yet"
        self._pass: Pass | None = None
        self._obstacle = _obstacle_of(network, gradient_hook)
        self._graphs = None if self._obstacle else _Graphs(self)

    def __call__(self, x: Any, labels: Any, lengths: Any = None, *, label_lengths: Any = None) -> StepResult:
        """Run one training step.

        Parameters
        ----------
        x : array, (B, *input_shape)
            The argument of `network.forward`.
        labels : array
            The labels that the loss accepts: integers (B,) or (B, T) for `bp.cross_entropy`.
        lengths : array of int, (B,), optional
            The number of steps of each sequence, as in `network.forward`.
        label_lengths : array of int, (B,), optional
            The number of labels of each sequence that count, for labels of every time step.

        Returns
        -------
        StepResult
            Loss, gradient norm and whether the update was skipped. The call does not wait for them.
        """
        if self._graphs is not None and not self._graphs.device.capturing:
            return self._graphs.step(x, labels, lengths, label_lengths)
        network, optimizer, device = self.network, self.optimizer, self.network.device
        self.ran = f"launch by launch: {self._obstacle or 'a capture is going on'}"
        if isinstance(network, BatchSequential):
            loss = micro_batch_gradients(
                network, x, labels, lengths, label_lengths, self.method, self.label_smoothing, self._pass
            )
        else:
            scores = network.forward(x, into=self._pass, lengths=lengths)
            if self.loss is cross_entropy:
                loss, gradient = cross_entropy(
                    scores, labels, lengths=label_lengths, device=device,
                    label_smoothing=self.label_smoothing,
                )  # fmt: skip
            else:
                loss, gradient = self.loss(scores, labels)
            network.backward(gradient, method=self.method)
        self._pass = network.last_pass
        if self.gradient_hook is not None:
            self.gradient_hook(network)
        norm = None if self.clip is None else device.fetch(clip_grad_norm(network.gradients, self.clip))
        fetched = device.fetch(loss)
        optimizer.step(network.gradients)
        blocked = optimizer.fetch_blocked()
        return StepResult(
            lambda: (float(fetched()), bool(blocked()[0]), None if norm is None else norm().item())
        )

    def forget(self) -> None:
        """Drop buffers and graphs. Call it after the network's masks have changed."""
        self._pass = None
        if self._graphs is not None:
            self._graphs.clear()


def micro_batch_gradients(
    network: BatchSequential,
    x: Any,
    labels: np.ndarray,
    lengths: Any,
    label_lengths: Any,
    method: str = "auto",
    label_smoothing: float = 0.0,
    into: Pass | None = None,
) -> Array:
    """The loss of a batch that ranks share, and its gradients, one micro-batch after another."""
    counted = int(np.count_nonzero(counted_labels(labels, label_lengths))) or None

    def loss(scores: Array, samples: slice) -> tuple[Array, Array]:
        return cross_entropy(
            scores, labels[samples], lengths=None if label_lengths is None else label_lengths[samples],
            counted=counted, label_smoothing=label_smoothing, device=network.device,
        )  # fmt: skip

    return network.gradients_of(x, loss, lengths, method=method, into=into)


def _obstacle_of(network: Sequential, gradient_hook: Any) -> str:
    """Why steps of a network cannot be captured; "" where they can."""
    if not isinstance(network.device, CudaDevice):
        return f"device {network.device.name!r} has no graphs"
    if type(network) is not Sequential:
        return f"a {type(network).__name__} exchanges data between ranks"
    return "a gradient hook runs on the host" if gradient_hook is not None else ""


# ---- graphs ----


class _Graphs:
    """The graphs of a step, by input shape; they share one memory pool."""

    def __init__(self, step: CapturedStep) -> None:
        device = step.network.device
        assert isinstance(device, CudaDevice)
        self.device = device
        self._step, self._pool = step, device.new_pool()
        self._shapes: dict[Any, _Shape] = {}
        self._stream: Any = None
        self._fixed: tuple[Any, ...] = ()

    def clear(self) -> None:
        """Drop all graphs, once they have run."""
        for shape in self._shapes.values():
            shape.wait()
        self._shapes.clear()

    def step(self, x: Any, labels: Any, lengths: Any, label_lengths: Any) -> StepResult:
        """A step on arrays of the host or of the device."""
        step, network, optimizer = self._step, self._step.network, self._step.optimizer
        if type(x) is not np.ndarray or x.dtype != network.dtype:
            place = self.device if is_on_gpu(x) else get_device("host")
            x = take_input("the network", place, network.dtype, x, network.architecture.check_input)
        targets, count = self._targets(x, labels, label_lengths)
        if lengths is not None:
            lengths = np.asarray(lengths)
            check_lengths(lengths, len(x), x.shape[1])
        numbers = optimizer.checked_numbers()
        # What all graphs were captured for.
        fixed = network.architecture, network.plan_in_use, network.gradients.flat, *optimizer.bound_arrays()
        if len(fixed) != len(self._fixed) or not all(map(operator.is_, fixed, self._fixed)):
            self.clear()
            self._fixed = fixed
        key = x.shape, targets.shape, targets.dtype, lengths is None, network.training
        shape = self._shapes.pop(key, None)
        if shape is None:
            shape = _Shape(self.device, network.dtype, x.shape, targets, lengths is not None, len(numbers))
        block = shape.blocks[0]
        shape.blocks.rotate()
        if block.result is not None:
            block.result.settle()  # whose place this step takes
        host = block.fields
        host["numbers"][...] = numbers
        host["count"][0] = count
        host["passes"][0] = network.random_state["passes"]
        host["labels"][...] = targets
        if lengths is not None:
            host["lengths"][...] = lengths
        self._stream = stream = self.device.follow(self._stream)
        if type(x) is np.ndarray:
            host["x"][...] = x
            shape.memory.set(block.memory, stream=stream)
        else:
            shape.head.set(block.head, stream=stream)
            shape.fields["x"][...] = x
        optimizer.numbers = numbers
        if shape.graph is None:
            self._without_graph(shape)
        if shape.graph is not None:
            assert shape.current is not None
            shape.graph(self.device)
            network.replayed(shape.current, shape.report)
            step.ran = "one CUDA graph"
        self._shapes[key] = shape
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.pop(next(iter(self._shapes))).wait()
        shape.found.get(out=block.found, blocking=False)
        block.event.record(stream)
        block.result = result = StepResult(partial(block.read, step.clip is not None))
        return result

    def _without_graph(self, shape: _Shape) -> None:
        """Capture the second step of a shape, or run the first one and those that cannot be captured."""
        step, network = self._step, self._step.network
        if shape.current is not None and not shape.obstacle:
            passes = network.random_state["passes"]
            try:
                with self.device.naming_memory:
                    shape.graph = self.device.capture(
                        partial(self._launch, shape), self._pool, whole_step=True
                    )
                return
            except Exception as error:
                shape.obstacle = f"the capture failed ({type(error).__name__}: {error})"
                warnings.warn(
                    f"training steps run launch by launch: {shape.obstacle}", RuntimeWarning, stacklevel=5
                )
            finally:
                network.random_state["passes"] = passes
        try:
            self._launch(shape)
        except DeviceError:
            if not self._shapes:
                raise
            self.clear()  # whose memory this shape may need
            self._launch(shape)
        step.ran = f"launch by launch: {shape.obstacle or 'the first step of a shape'}"
        shape.obstacle = shape.obstacle or _obstacle_in(shape.current)

    def _launch(self, shape: _Shape) -> None:
        """All launches of a step; a capture records them."""
        step, network, optimizer, fields = self._step, self._step.network, self._step.optimizer, shape.fields
        optimizer.table[...] = fields["numbers"]
        network.passes_on_device = fields["passes"]
        try:
            scores = network.forward(fields["x"], fields.get("lengths"), into=shape.current)
        finally:
            network.passes_on_device = None
        shape.current = network.last_pass
        if step.loss is cross_entropy:
            loss, gradient = mean_cross_entropy(
                self.device, scores, fields["labels"], fields["count"], step.label_smoothing
            )
        else:
            loss, gradient = step.loss(scores, fields["labels"])
        network.backward(gradient, step.method)
        if step.clip is not None:
            shape.results["norm"][...] = clip_grad_norm(network.gradients, step.clip)
        shape.results["loss"][...] = loss
        optimizer.step(network.gradients)
        shape.results["blocked"][...] = optimizer.flag
        shape.report = network.last_backward

    def _targets(self, x: Array, labels: Any, label_lengths: Any) -> tuple[np.ndarray, int]:
        """The labels as the loss takes them, and how many count."""
        network = self._step.network
        if self._step.loss is not cross_entropy:
            array = np.asarray(labels.get() if isinstance(labels, self.device.xp.ndarray) else labels)
            return array.astype(network.dtype if array.dtype.kind == "f" else np.int64, copy=False), 1
        *shape, classes = network.output_shape
        steps = (x.shape[1] if size is None else size for size in shape)
        return checked_targets(labels, (len(x), *steps), classes, label_lengths)


def _obstacle_in(current: Pass | None) -> str:
    """Why a pass cannot be captured; "" where it can."""
    assert current is not None
    for walker in current.walkers():
        stack = getattr(walker.ctx, "stack", None)
        if stack is not None and stack.graphs is None:
            return f"layer {walker.place} iterates, and the host waits for its error"
    for place in walk(current.architecture, current.layers):
        if isinstance(place.layer, Weighted) and place.ctx is not None and place.layer.waits(place.ctx):
            return f"layer {place.path} multiplies by masked weights, and the host looks for NaN in its input"
    return ""


class _Shape:
    """The arrays and the graph of one input shape.

    memory   what a step reads from the host, in one piece; `head` is all of it but the input
    fields   its arrays by name
    found    what a step writes for the host, in one piece; `results` are its arrays
    current  the pass; report: what its backward pass ran
    """

    def __init__(
        self,
        device: CudaDevice,
        dtype: np.dtype,
        x_shape: tuple[int, ...],
        targets: np.ndarray,
        with_lengths: bool,
        numbers: int,
    ) -> None:
        integers = np.dtype(np.int64)
        kinds = {
            "numbers": (np.dtype(np.float64), (numbers,)),
            "count": (dtype, (1,)),
            "passes": (integers, (1,)),
            "labels": (targets.dtype, targets.shape),
            **({"lengths": (integers, x_shape[:1])} if with_lengths else {}),
            "x": (dtype, x_shape),
        }
        results = {
            "norm": (np.dtype(np.float64), ()),
            "loss": (dtype, ()),
            "blocked": (np.dtype(np.int32), (1,)),
        }
        with device.naming_memory:
            self.memory, self.fields = _arrays_in(kinds, lambda n: device.empty((n,), np.uint8))
            self.found, self.results = _arrays_in(results, lambda n: device.zeros((n,), np.uint8))
            self.blocks = deque(_HostBlock(device, kinds, results) for _ in range(BLOCKS))
        self.head = self.memory[: self.memory.size - self.blocks[0].x_bytes]
        self.graph: Replay | None = None
        self.current: Pass | None = None
        self.report: Any = None
        self.obstacle = ""

    def wait(self) -> None:
        """Wait for the steps so far, and keep their results."""
        for block in self.blocks:
            if block.result is not None:
                block.result.settle()


class _HostBlock:
    """The pinned memory of a step, and the event after the step."""

    def __init__(
        self, device: CudaDevice, kinds: Mapping[str, tuple[Any, Any]], results: Mapping[str, tuple[Any, Any]]
    ) -> None:
        self.memory, self.fields = _arrays_in(kinds, lambda n: device.pinned((n,), np.uint8))
        self.found, self._results = _arrays_in(results, lambda n: device.pinned((n,), np.uint8))
        x_begin = lay_out(np.dtype(np.uint8), _bytes_of(kinds))[0]["x"][0].start
        self.x_bytes, self.head = self.memory.size - x_begin, self.memory[:x_begin]
        self.event = device.xp.cuda.Event(disable_timing=True)
        self.result: StepResult | None = None

    def read(self, clipped: bool) -> Values:
        """Loss, whether the update was left out, and the norm, once the step is done."""
        self.event.synchronize()
        found = self._results
        norm = float(found["norm"]) if clipped else None
        return float(found["loss"]), bool(found["blocked"][0]), norm


def _bytes_of(kinds: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[int, ...]]:
    return {name: (int(np.prod(shape)) * dtype.itemsize,) for name, (dtype, shape) in kinds.items()}


def _arrays_in(
    kinds: Mapping[str, tuple[Any, Any]], new: Callable[[int], Array]
) -> tuple[Array, dict[str, Array]]:
    """Bytes that hold arrays of these dtypes and shapes, and the arrays by name."""
    spans, size = lay_out(np.dtype(np.uint8), _bytes_of(kinds))
    memory = new(size)
    arrays = {
        name: memory[spans[name][0]].view(dtype).reshape(shape) for name, (dtype, shape) in kinds.items()
    }
    return memory, arrays
