"""A training step as one call: on a GPU one CUDA graph per input shape, on the host a plain loop body."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import numpy as np

from bppsa_cupy.arguments import as_choice
from bppsa_cupy.conversion import is_on_gpu
from bppsa_cupy.data.dataset import counted_labels
from bppsa_cupy.devices import Array, get_device
from bppsa_cupy.devices.base import Graphs
from bppsa_cupy.devices.cuda import ON_GPU, TO_GPU, TO_HOST, CudaDevice
from bppsa_cupy.distributed import BatchSequential
from bppsa_cupy.errors import ArgumentError, DeviceError
from bppsa_cupy.network.parameters import lay_out
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
        self._read: Callable[[], Values] | None = read
        self._values: Values | None = None

    def settle(self) -> Values:
        """Wait for the values and keep them."""
        if self._values is None:
            assert self._read is not None
            self._values, self._read = self._read(), None
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
    """A training step in one call: forward pass, loss, backward pass, clipping and update.

    On a GPU the second step with each input shape is captured as a CUDA graph. Every later step with that
    shape is one copy to the GPU, one graph launch and one copy back. The first step with a shape launches its
    kernels one by one, because it compiles them. On the host a step calls the layers one after another.

    Parameters
    ----------
    network : Sequential
        The network to train, in its current mode (training or evaluation).
    optimizer : Optimizer
        An optimizer of `network.parameters`. Its hyper-parameters and `lr_factor` may change between steps.
    loss : callable, default: bp.cross_entropy
        A function `loss(scores, labels)` that returns the loss and its gradient with respect to the scores,
        like `bp.mse_loss`. On a GPU it must not read values on the host.
    method : str, default: "auto"
        The `method` argument of `network.backward`.
    clip : float, optional
        The argument `max_norm` of `bp.clip_grad_norm`. By default gradients are not clipped.
    label_smoothing : float, default: 0.0
        The `label_smoothing` argument of `bp.cross_entropy`.
    gradient_hook : callable, optional
        Called with the network after each backward pass. Steps with a hook are not captured.

    Attributes
    ----------
    ran : str
        How the latest step ran: "one CUDA graph", or "launch by launch" with the reason.

    Notes
    -----
    Steps with Newton iterations, masked layers that multiply by the dense weight, gradient hooks or several
    ranks are not captured. If a capture fails, the step emits a RuntimeWarning and launches its kernels one
    by one. A step that raises an error changes neither the parameters nor the state of the optimizer. Each of
    the 8 latest input shapes has separate activations in memory.

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
        if optimizer.parameters is not network.parameters:
            raise ArgumentError("the optimizer updates another network: create it from network.parameters")
        as_choice("CapturedStep", "method", method, METHODS)
        check_smoothing(label_smoothing)
        if label_smoothing and loss is not cross_entropy:
            raise ArgumentError("label_smoothing works only with bp.cross_entropy: omit it for another loss")
        if isinstance(network, BatchSequential) and loss is not cross_entropy:
            raise ArgumentError("ranks that split a batch support only bp.cross_entropy: omit loss")
        self.network, self.optimizer, self.loss, self.method = network, optimizer, loss, method
        self.clip = None if clip is None else check_max_norm(clip)
        self.label_smoothing, self.gradient_hook = label_smoothing, gradient_hook
        self.ran = "no step yet"
        self._pass: Pass | None = None
        self._obstacle = ""  # why steps cannot be captured
        if not isinstance(network.device, CudaDevice):
            self._obstacle = f"device {network.device.name!r} has no graphs"
        elif type(network) is not Sequential:
            self._obstacle = f"a {type(network).__name__} exchanges data between ranks"
        elif gradient_hook is not None:
            self._obstacle = "a gradient hook runs on the host"
        self._cuda = cast(CudaDevice, network.device)  # used where there is no obstacle
        # The graphs by input shape, their common memory, the latest stream, and what they were captured for.
        self._shapes: dict[Any, _Shape] = {}
        self._pool = None if self._obstacle else self._cuda.new_pool()
        self._stream: Any = None
        self._fixed: tuple[Any, ...] = None, None, None
        self._output_shape = network.output_shape

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
        if self._obstacle or self._cuda.capturing:
            return self._run_plainly(x, labels, lengths, label_lengths)
        return self._run_graph(x, labels, lengths, label_lengths)

    def forget(self) -> None:
        """Delete buffers and CUDA graphs to free memory. The next step makes new ones."""
        self._pass = None
        for shape in self._shapes.values():
            shape.wait()
        self._shapes.clear()

    def _run_plainly(self, x: Any, labels: Any, lengths: Any, label_lengths: Any) -> StepResult:
        """A step as the body of a plain training loop."""
        network, optimizer, device = self.network, self.optimizer, self.network.device
        self.ran = f"launch by launch: {self._obstacle or 'a capture is going on'}"
        if isinstance(network, BatchSequential):
            counted = int(np.count_nonzero(counted_labels(labels, label_lengths))) or None

            def loss_of(scores: Array, samples: slice) -> tuple[Array, Array]:
                lengths = None if label_lengths is None else label_lengths[samples]
                return self._loss_of(scores, labels[samples], lengths, counted)

            loss = network.gradients_of(x, loss_of, lengths, method=self.method, into=self._pass)
        else:
            scores = network.forward(x, into=self._pass, lengths=lengths)
            loss, gradient = self._loss_of(scores, labels, label_lengths)
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

    def _loss_of(
        self, scores: Array, labels: Any, lengths: Any, counted: int | None = None
    ) -> tuple[Array, Array]:
        if self.loss is not cross_entropy:
            return self.loss(scores, labels)
        return cross_entropy(
            scores, labels, lengths=lengths, counted=counted, label_smoothing=self.label_smoothing,
            device=self.network.device,
        )  # fmt: skip

    # ---- graphs ----

    def _run_graph(self, x: Any, labels: Any, lengths: Any, label_lengths: Any) -> StepResult:
        """A step as a graph, or one that leads to it, on arrays of the host or of the device."""
        network, optimizer, device = self.network, self.optimizer, self._cuda
        if type(x) is not np.ndarray or x.dtype != network.dtype:
            place = device if is_on_gpu(x) else get_device("host")
            x = take_input(network.architecture, place, network.dtype, x)
        targets, count = self._targets(x, labels, label_lengths)
        if lengths is not None:
            lengths = np.asarray(lengths)
            check_lengths(lengths, len(x), x.shape[1])
        fixed = network.parameters.masks, network.plan_in_use, optimizer.arrays
        if any(map(operator.is_not, fixed, self._fixed)):
            self.forget()
            optimizer.fit()
            self._fixed = *fixed[:2], optimizer.arrays
        key = x.shape, targets.shape, targets.dtype, lengths is None, network.training
        shape = self._shapes.pop(key, None)
        if shape is None:
            shape = _Shape(device, network.dtype, x, targets, lengths, len(optimizer.numbers))
        host = shape.hosts[0]
        shape.hosts.rotate()
        if host.result is not None:
            host.result.settle()  # whose place this step takes
        fields = host.inputs.arrays
        fields["numbers"][...] = optimizer.numbers
        fields["count"][0] = count
        fields["passes"][0] = network.random_state["passes"]
        fields["labels"][...] = targets
        if lengths is not None:
            fields["lengths"][...] = lengths
        self._stream = stream = device.follow(self._stream)
        copy, begin = device.xp.cuda.runtime.memcpyAsync, 0
        if type(x) is np.ndarray:
            fields["x"][...] = x
        else:
            copy(shape.inputs.address, x.data.ptr, x.nbytes, ON_GPU, stream.ptr)
            begin = shape.inputs.second
        source, target = host.inputs.address + begin, shape.inputs.address + begin
        copy(target, source, shape.inputs.size - begin, TO_GPU, stream.ptr)
        launch, passes = partial(self._launch, shape), network.random_state["passes"]
        replay = partial(device.replay, shape.graphs, None, "a training step", launch)
        try:
            why = replay(pool=self._pool, whole_step=True)
        except DeviceError:
            if not self._shapes:
                raise
            self.forget()  # whose memory this shape may need
            why = replay(pool=self._pool, whole_step=True)
        finally:
            network.random_state["passes"] = passes
        self.ran = f"launch by launch: {why}" if why else "one CUDA graph"
        network.replayed(shape.current, shape.report)
        self._shapes[key] = shape
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.pop(next(iter(self._shapes))).wait()
        copy(host.results.address, shape.results.address, shape.results.size, TO_HOST, stream.ptr)
        host.event.record(stream)
        host.result = result = StepResult(partial(host.read, self.clip is not None))
        return result

    def _launch(self, shape: _Shape) -> None:
        """All launches of a step; a capture records them."""
        network, optimizer = self.network, self.optimizer
        fields, results = shape.inputs.arrays, shape.results.arrays
        optimizer.table[...] = fields["numbers"]
        network.passes_on_device = fields["passes"]
        try:
            scores = network.forward(fields["x"], fields.get("lengths"), into=shape.current)
        finally:
            network.passes_on_device = None
        shape.current = network.last_pass
        if self.loss is cross_entropy:
            loss, gradient = mean_cross_entropy(
                network.device, scores, fields["labels"], fields["count"], self.label_smoothing
            )
        else:
            loss, gradient = self.loss(scores, fields["labels"])
        network.backward(gradient, self.method)
        if self.clip is not None:
            results["norm"][...] = clip_grad_norm(network.gradients, self.clip)
        results["loss"][...] = loss
        optimizer.launch(network.gradients)
        results["blocked"][...] = optimizer.flag
        shape.report = network.last_backward

    def _targets(self, x: Array, labels: Any, label_lengths: Any) -> tuple[np.ndarray, int]:
        """The labels as the loss takes them, and how many count."""
        if self.loss is not cross_entropy:
            array = np.asarray(labels.get() if isinstance(labels, self._cuda.xp.ndarray) else labels)
            return array.astype(self.network.dtype if array.dtype.kind == "f" else np.int64, copy=False), 1
        *sizes, classes = self._output_shape
        shape = len(x), *(sizes and (x.shape[1] if size is None else size for size in sizes))
        return checked_targets(labels, shape, classes, label_lengths)


#: Dtype and shape of arrays, by name.
Kinds = Mapping[str, tuple[Any, tuple[int, ...]]]


class _Block:
    """Memory, made by `new`, and the arrays of these kinds in it.

    Parameters
    ----------
    address, size
        Address of the memory, and its size in bytes.
    second
        Offset of the second array.
    """

    def __init__(self, kinds: Kinds, new: Callable[..., Array]) -> None:
        sizes = {name: (math.prod(shape) * np.dtype(kind).itemsize,) for name, (kind, shape) in kinds.items()}
        spans, self.size = lay_out(np.dtype(np.uint8), sizes)
        places = [place for place, _ in spans.values()]
        memory = new((self.size,), np.uint8)
        self.address = memory.ctypes.data if type(memory) is np.ndarray else memory.data.ptr
        self.second = places[1].start
        self.arrays = {
            name: memory[place].view(kind).reshape(shape)
            for place, (name, (kind, shape)) in zip(places, kinds.items(), strict=True)
        }


class _Host:
    """The pinned memory of a step, and the event after the step."""

    def __init__(self, device: CudaDevice, inputs: Kinds, results: Kinds) -> None:
        self.inputs, self.results = _Block(inputs, device.pinned), _Block(results, device.pinned)
        self.event = device.xp.cuda.Event(disable_timing=True)
        self.result: StepResult | None = None

    def __del__(self) -> None:
        """Wait for the step: its copies use this memory."""
        if self.result is not None:
            with suppress(Exception):  # where the process ends
                self.result.settle()

    def read(self, clipped: bool) -> Values:
        """Loss, whether the update was left out, and the norm, once the step is done."""
        self.event.synchronize()
        results = self.results.arrays
        norm = float(results["norm"]) if clipped else None
        return float(results["loss"]), bool(results["blocked"][0]), norm


class _Shape:
    """The memory and the graph of one input shape (`CudaDevice.replay`).

    Parameters
    ----------
    inputs, results
        Arrays that a step reads and writes on the device.
    hosts
        The same arrays on the host. Steps use them in turn.
    current, report
        The pass, and the report of its backward pass.
    """

    def __init__(
        self, device: CudaDevice, dtype: np.dtype, x: Array, targets: np.ndarray, lengths: Any, numbers: int
    ) -> None:
        inputs: dict[str, tuple[Any, tuple[int, ...]]] = {
            "x": (dtype, x.shape),
            "numbers": (np.float64, (numbers,)),
            "count": (dtype, (1,)),
            "passes": (np.int64, (1,)),
            "labels": (targets.dtype, targets.shape),
        }
        if lengths is not None:
            inputs["lengths"] = np.int64, lengths.shape
        results: Kinds = {"norm": (np.float64, ()), "loss": (dtype, ()), "blocked": (np.int32, (1,))}
        with device.naming_memory:
            self.inputs, self.results = _Block(inputs, device.empty), _Block(results, device.zeros)
            self.hosts = deque(_Host(device, inputs, results) for _ in range(BLOCKS))
        self.graphs: Graphs = {}
        self.current: Any = None
        self.report: Any = None

    def wait(self) -> None:
        """Wait for the steps so far, and keep their results."""
        for host in self.hosts:
            if host.result is not None:
                host.result.settle()
