"""All inner layers and directions of one recurrent layer, for one batch size and number of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.raw_kernels.sequence_gather import KERNEL as GATHER
from bppsa_cupy.raw_kernels.sequence_scatter import KERNEL as SCATTER
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.cells import Cell
from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.timescan.forward import TimeForward
from bppsa_cupy.timescan.sizes import StackSizes, suffix
from bppsa_cupy.timescan.walk import Walk

Launch = Callable[[], None]


class Stack:
    """Bound launches of a recurrent layer on buffers of `stack_shapes`; nothing is allocated in a pass.

    arrays     the buffers, and `lengths` (B,) int64
    parameters, gradients  by PyTorch's names ("weight_ih_l0")
    forward_method  of the passes over time: "auto", "serial", "newton" or "quasi-newton"

    A pass fills `arrays["input"]` by `take`, and lengths and initial states; then `forward`; then, for the
    way back, the boundaries and gradients by the outputs; `backward`; `weight_gradients` and
    `input_gradient` in either order, or neither.
    """

    def __init__(
        self,
        device: Device,
        cell: Cell,
        sizes: StackSizes,
        arrays: Mapping[str, Array],
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        forward_method: str = "auto",
    ) -> None:
        self.device, self.cell, self.sizes, self.arrays = device, cell, sizes, arrays
        self._forward_method = forward_method
        self._parameters, self._gradients = parameters, gradients
        self._places = [(k, d) for k in range(sizes.layers) for d in range(sizes.directions)]
        self.walks = {place: self._walk(*place) for place in self._places}
        self._forwards: dict[tuple[int, int], TimeForward] = {}
        share = self._share()
        self._forward = [
            launch for layer in range(sizes.layers) for launch in self._bind_forward(layer, share)
        ]
        self._method: str | None = None
        self._backward: list[Launch] = []
        self._scans: dict[tuple[int, int], TimeScan] = {}
        self._weights: list[Launch] | None = None
        self._to_input: list[Launch] | None = None

    def _walk(self, layer: int, direction: int) -> Walk:
        of, a, sizes = suffix(layer, direction), self.arrays, self.sizes
        return Walk(
            cell=self.cell,
            steps=sizes.steps,
            hidden=sizes.hidden,
            batch=sizes.batch,
            reverse=direction == 1,
            weight_hh=self._parameters[f"weight_hh{of}"],
            bias_n=a[f"bias_n{of}"] if self.cell.name == "gru" else None,
            lengths=a["lengths"],
            initial=a[f"initial{of}"],
            projected=a["projected"],
            state=a[f"state{of}"],
            gates=a[f"gates{of}"] if self.cell.kept else None,
            final=a[f"final{of}"],
        )

    def _share(self) -> int:
        """Bytes each pass over time may take, so that those of all layers and directions fit."""
        return self.device.free_memory() // len(self._places)

    def _values(self, layer: int) -> Array:
        """What goes into an inner layer, (T, rows, B)."""
        if layer == 0:
            return self.arrays["input"]
        return self.arrays[f"joined_l{layer}" if self.sizes.directions > 1 else f"state_l{layer - 1}"]

    # ---- forward ----

    def take(self, x: Array) -> None:
        """Take the input, (B, T, F); what lies behind a sample's end becomes 0."""
        self._gather(x, 0, self.arrays["input"])

    def forward(self) -> None:
        """Every state of every inner layer and direction."""
        for launch in self._forward:
            launch()

    def put(self, out: Array) -> None:
        """Write the last inner layer's output of every step, (B, T, D H); 0 behind a sample's end."""
        sizes, a = self.sizes, self.arrays
        for direction in range(sizes.directions):
            state = a[f"state{suffix(sizes.layers - 1, direction)}"]
            self.device.launch(
                SCATTER, state, a["lengths"], out, sizes.steps, state.shape[1], sizes.hidden, sizes.batch,
                out.shape[2], direction * sizes.hidden,
            )  # fmt: skip

    def _gather(self, outside: Array, offset: int, inside: Array) -> None:
        steps, features, batch = inside.shape
        self.device.launch(
            GATHER, outside, self.arrays["lengths"], inside, steps, features, batch, outside.shape[2], offset
        )

    def _bind_forward(self, layer: int, share: int) -> list[Launch]:
        launches: list[Launch] = []
        values = self._values(layer)
        if layer and self.sizes.directions > 1:
            launches.append(self._join(layer))
        for direction in range(self.sizes.directions):
            of = suffix(layer, direction)
            bias = self.arrays[f"bias{of}"] if self.sizes.bias else None
            weight = self._parameters[f"weight_ih{of}"]
            if bias is not None:
                launches.append(self._add_biases(of))
            walk = self.walks[layer, direction]
            launches.append(products.project(self.device, values, weight, bias, walk.projected))
            self._forwards[layer, direction] = TimeForward(self.device, walk, self._forward_method, share)
            launches.append(self._forwards[layer, direction])
        return launches

    def _join(self, layer: int) -> Launch:
        """The outputs of both directions side by side."""
        joined, H = self.arrays[f"joined_l{layer}"], self.sizes.hidden
        states = [self.arrays[f"state{suffix(layer - 1, d)}"] for d in range(self.sizes.directions)]

        def call() -> None:
            for direction, state in enumerate(states):
                joined[:, direction * H : (direction + 1) * H] = state[:, :H]

        return call

    def _add_biases(self, of: str) -> Launch:
        """The biases that are added to the projected input; b_hn stays apart, as r is multiplied by it."""
        by_input, by_state = self._parameters[f"bias_ih{of}"], self._parameters[f"bias_hh{of}"]
        bias, bias_n = self.arrays[f"bias{of}"], self.arrays[f"bias_n{of}"]
        add, both = self.device.xp.add, 2 * self.sizes.hidden
        if self.cell.name != "gru":
            return lambda: add(by_input, by_state, out=bias)

        def call() -> None:
            add(by_input[:both], by_state[:both], out=bias[:both])
            bias[both:] = by_input[both:]
            bias_n[...] = by_state[both:]

        return call

    # ---- backward ----

    def take_gradient(self, gradient: Array) -> None:
        """Take the gradient by the output of every step, (B, T, D H)."""
        for direction in range(self.sizes.directions):
            self._gather(gradient, direction * self.sizes.hidden, self.arrays[f"by_output{direction}"])

    def backward(self, method: str = "auto") -> None:
        """Every delta, and the gradients by the initial states, by a method of net.backward."""
        if self._method != method:
            self._method = None
            self._scans.clear()
            self._backward.clear()
            layers, share = reversed(range(self.sizes.layers)), self._share()
            self._backward = [
                launch for layer in layers for launch in self._bind_backward(layer, method, share)
            ]
            self._method = method
        for launch in self._backward:
            launch()

    @property
    def forward_descriptions(self) -> list[str]:
        """How each inner layer and direction last went forward, and why."""
        return [f"{suffix(*place)[1:]}: {walk.description}" for place, walk in self._forwards.items()]

    @property
    def backward_descriptions(self) -> list[str]:
        """How each inner layer and direction last went back, and why."""
        return [f"{suffix(*place)[1:]}: {self._scans[place].description}" for place in sorted(self._scans)]

    def _bind_backward(self, layer: int, method: str, share: int) -> list[Launch]:
        sizes, a = self.sizes, self.arrays
        last = layer == sizes.layers - 1
        launches: list[Launch] = []
        if not last:
            launches += self._bind_to_input(layer + 1)
        for direction in range(sizes.directions):
            of = suffix(layer, direction)
            by_output = None if last and not sizes.every_step else a[f"by_output{direction}"]
            self._scans[layer, direction] = TimeScan(
                self.device,
                self.walks[layer, direction],
                by_output,
                a[f"boundary{of}"],
                a[f"delta{of}"],
                a[f"entering{of}"],
                method,
                free=share,
            )
            launches.append(self._scans[layer, direction])
        return launches

    def _bind_to_input(self, layer: int) -> list[Launch]:
        """The gradient by an inner layer's input: of layer 0 in `by_input0`, else in `by_output`."""
        sizes, a, xp = self.sizes, self.arrays, self.device.xp
        if sizes.directions == 1:
            out = a["by_output0" if layer else "by_input0"]
            return [products.project_back(self.device, a[f"delta_l{layer}"], self._weight_ih(layer, 0), out)]
        outs = [a[f"{'by_joined' if layer else 'by_input'}{d}"] for d in range(sizes.directions)]
        launches = [
            products.project_back(
                self.device, a[f"delta{suffix(layer, d)}"], self._weight_ih(layer, d), outs[d]
            )
            for d in range(sizes.directions)
        ]
        launches.append(lambda: xp.add(outs[0], outs[1], out=outs[0]))
        if layer:
            H = sizes.hidden

            def split() -> None:
                for d in range(sizes.directions):
                    a[f"by_output{d}"][...] = outs[0][:, d * H : (d + 1) * H]

            launches.append(split)
        return launches

    def _weight_ih(self, layer: int, direction: int) -> Array:
        return self._parameters[f"weight_ih{suffix(layer, direction)}"]

    def input_gradient(self, out: Array) -> None:
        """Write the gradient by the input, (B, T, F), of the last `backward`."""
        if self._to_input is None:
            self._to_input = self._bind_to_input(0)
        for launch in self._to_input:
            launch()
        sizes = self.sizes
        self.device.launch(
            SCATTER, self.arrays["by_input0"], self.arrays["lengths"], out, sizes.steps, sizes.inputs,
            sizes.inputs, sizes.batch, sizes.inputs, 0,
        )  # fmt: skip

    def weight_gradients(self) -> None:
        """Write the gradients by all weights and biases, of the last `backward`."""
        if self._weights is None:
            self._weights = [launch for place in self._places for launch in self._bind_weights(*place)]
        for launch in self._weights:
            launch()

    def _bind_weights(self, layer: int, direction: int) -> list[Launch]:
        of, H, walk = suffix(layer, direction), self.sizes.hidden, self.walks[layer, direction]
        delta = self.arrays[f"delta{of}"]
        # GRU's W_hn sees m's gradient, its fourth block of rows.
        blocks = (
            [(0, 0, 2 * H), (3 * H, 2 * H, 3 * H)]
            if self.cell.name == "gru"
            else [(0, 0, self.cell.gates * H)]
        )
        launches = [self._sum(delta, 0, self._values(layer), None, False, f"ih{of}", 0, self.cell.gates * H)]
        for first, start, end in blocks:
            launches.append(
                self._sum(delta, first, walk.state, walk.initial, walk.reverse, f"hh{of}", start, end)
            )
        return launches

    def _sum(
        self, delta: Array, first: int, values: Array, initial: Array | None, reverse: bool, name: str,
        start: int, end: int,
    ) -> Launch:  # fmt: skip
        """Rows `start` to `end` of the gradients by weight and bias `name`, from delta's row `first` on."""
        weight = self._gradients[f"weight_{name}"][start:end]
        bias = self._gradients[f"bias_{name}"][start:end] if self.sizes.bias else None
        parts = products.parts_of(self.device, self.sizes.steps, self.sizes.batch)
        shape = (parts, end - start, weight.shape[1] + 1)
        count = shape[0] * shape[1] * shape[2]
        sums = self.arrays["sums"][:count].reshape(shape)
        return products.weight_gradient(
            self.device, delta, first, values, initial, reverse, sums, weight, bias
        )
