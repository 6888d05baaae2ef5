"""The sides of the benchmarks of sequences: a pass forward with the loss, and back to every parameter, of one
recurrent layer, its last state and a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bppsa_cupy.data.bitstream import make_bitstreams
from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import GRU, LSTM, RNN, Linear
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.jax import scan_of
from bppsa_cupy.tools.benchmarks.rivals import TorchWorkload, to_numpy, torch_device, torch_recurrent
from bppsa_cupy.tools.benchmarks.workload import Lap, Workload
from bppsa_cupy.training.losses import cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

LAYERS = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
#: The paper's units, and classes.
HIDDEN, CLASSES = 20, 10


def make_network(
    cell: str, device: str, steps: int, features: int, hidden: int = HIDDEN, heads: int = 1
) -> Sequential:
    """The paper's model."""
    layers = [LAYERS[cell](features, hidden, outputs="last", heads=heads), Linear(hidden, CLASSES)]
    return Sequential(layers, input_shape=(steps, features), device=device)


def make_batch(steps: int, features: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (B, T, F) and labels, the same in every process: bitstreams of one feature (equation 8),
    normal values, as features that are normalised, of several."""
    if features == 1:
        bits = make_bitstreams(steps, batch)
        return bits.inputs.astype(np.float32), bits.labels
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((batch, steps, features), dtype=np.float32)
    return inputs, generator.integers(0, CLASSES, batch)


class Gradients(Workload):
    """Ours."""

    stateful = True

    def __init__(
        self, cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
        heads: int = 1, method: str = "auto",
    ) -> None:  # fmt: skip
        self.network, self.method = make_network(cell, device, steps, features, hidden, heads), method
        if method != "auto":
            self.network.use(self.network.plan(batch_size=batch))
        self.device = self.network.device
        inputs, self.labels = make_batch(steps, features, batch)
        self.inputs, self.loss = self.device.asarray(inputs), None

    def run(self, lap: Lap) -> None:
        network = self.network
        output = network.forward(self.inputs, into=network.last_pass)
        self.loss, gradient = cross_entropy(output, self.labels, device=self.device)
        lap("forward")
        network.backward(gradient, method=self.method)
        lap("backward")

    def result(self) -> dict[str, np.ndarray]:
        host = self.device.to_host
        gradients = {name: np.array(host(array)) for name, array in self.network.gradients.items()}
        return {"loss": np.asarray(host(self.loss)), **gradients}


class TorchGradients(TorchWorkload):
    """PyTorch's dense layer, from the same parameters, inputs and labels.

    flush  denormal numbers are 0, as ours are: gradients of the last state fall to them within a thousand
           steps, and a step then takes a hundred times as long
    """

    stateful = True

    def __init__(
        self, cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
        heads: int = 1, tf32: bool = False, flush: bool = False,
    ) -> None:  # fmt: skip
        import torch

        network = make_network(cell, device, steps, features, hidden, heads)
        self.device, self.where = network.device, torch_device(network.device)
        torch.backends.cudnn.allow_tf32 = tf32
        torch.set_flush_denormal(flush)
        self.build(network)
        inputs, labels = make_batch(steps, features, batch)
        self.inputs, self.labels = (torch.tensor(one, device=self.where) for one in (inputs, labels))
        self.loss: Any = None

    def build(self, network: Sequential) -> None:
        """Copy the network: `self.parameters` by their names."""
        self.recurrent, self.linear = model = torch_recurrent(network).to(self.where)
        self.parameters: dict[str, Any] = dict(model.named_parameters())

    def output(self) -> Any:
        """The scores, (B, CLASSES)."""
        states = self.recurrent(self.inputs)[1]
        return self.linear((states[0] if isinstance(states, tuple) else states)[-1])

    def reset(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def run(self, lap: Lap) -> None:
        import torch

        self.loss = torch.nn.functional.cross_entropy(self.output(), self.labels)
        lap("forward")
        self.loss.backward()
        lap("backward")

    def result(self) -> dict[str, np.ndarray]:
        gradients = {name: to_numpy(one.grad) for name, one in self.parameters.items()}
        return {"loss": to_numpy(self.loss), **gradients}


class JaxGradients(Workload):
    """The cell by jax.lax.scan and the linear layer: loss and gradients, one function compiled by jax.jit."""

    def __init__(
        self, cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
        heads: int = 1,
    ) -> None:  # fmt: skip
        import jax

        network = make_network(cell, "host", steps, features, hidden, heads)
        self.device = get_device(device)
        where = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        given = network.state_dict(), *make_batch(steps, features, batch)
        self.parameters, self.inputs, self.labels = jax.device_put(given, where)
        self.scan = scan_of(cell, hidden, "0.", last=True)
        self.wait = jax.block_until_ready
        self.found: Any = None
        self.build()

    def build(self) -> None:
        """Compile what a run calls."""
        import jax

        def loss(parameters: Any, inputs: Any, labels: Any) -> Any:
            scores = jax.nn.log_softmax(self.output(parameters, inputs))
            return -scores[jax.numpy.arange(len(labels)), labels].mean()

        self.call = jax.jit(jax.value_and_grad(loss))

    def output(self, parameters: Any, inputs: Any) -> Any:
        """The scores, (B, CLASSES)."""
        return self.scan(parameters, inputs) @ parameters["1.weight"].T + parameters["1.bias"]

    def run(self, lap: Lap) -> None:
        self.found = self.wait(self.call(self.parameters, self.inputs, self.labels))

    def result(self) -> dict[str, np.ndarray]:
        loss, gradients = self.found
        return {"loss": np.asarray(loss), **{name: np.asarray(one) for name, one in gradients.items()}}


class Outputs(Gradients):
    """Ours without a way back: the scores alone."""

    stateful = False

    def run(self, lap: Lap) -> None:
        network = self.network.eval()
        self.scores = network.forward(self.inputs, into=network.last_pass, keep=False)

    def result(self) -> dict[str, np.ndarray]:
        return {"scores": np.array(self.device.to_host(self.scores))}


class TorchOutputs(TorchGradients):
    """PyTorch's, in its inference mode."""

    stateful = False

    def run(self, lap: Lap) -> None:
        import torch

        with torch.inference_mode():
            self.scores = self.output()

    def result(self) -> dict[str, np.ndarray]:
        return {"scores": to_numpy(self.scores)}


class JaxOutputs(JaxGradients):
    """JAX's, compiled by jax.jit."""

    def build(self) -> None:
        import jax

        self.call = jax.jit(lambda parameters, inputs, labels: self.output(parameters, inputs))

    def result(self) -> dict[str, np.ndarray]:
        return {"scores": np.asarray(self.found)}


class SteppedGradients(TorchGradients):
    """A layer with heads as one writes it in PyTorch: the inputs' products of all steps at once, and a step
    a product of matrices by head and what the cell does with it."""

    def build(self, network: Sequential) -> None:
        import torch

        self.step = STEPS_OF[type(network.layers[0]).__name__.lower()]
        self.parameters = {
            name: torch.tensor(array, device=self.where, requires_grad=True)
            for name, array in network.state_dict().items()
        }

    def output(self) -> Any:
        import torch

        own = self.parameters
        by_input = torch.nn.functional.linear(self.inputs, own["0.weight_ih_l0"], own["0.bias_ih_l0"])
        rows, size = own["0.weight_hh_l0"].shape
        batch, hidden = len(self.inputs), own["1.weight"].shape[1]
        heads, gates = hidden // size, rows // hidden
        weights = own["0.weight_hh_l0"].view(gates, heads, size, size).permute(1, 3, 0, 2)
        weights = weights.reshape(heads, size, gates * size)
        # (T, heads, B, gates · size), and the biases (heads, 1, gates · size)
        by_input = by_input.view(batch, -1, gates, heads, size).permute(1, 3, 0, 2, 4)
        by_input = by_input.reshape(-1, heads, batch, gates * size)
        bias = own["0.bias_hh_l0"].view(gates, heads, size).permute(1, 0, 2).reshape(heads, 1, gates * size)
        states = (by_input.new_zeros(heads, batch, size),) * (2 if self.step is lstm_step else 1)
        for x in by_input:
            states = self.step(x, torch.baddbmm(bias, states[0], weights), states)
        last = states[0].permute(1, 0, 2).reshape(batch, -1)
        return torch.nn.functional.linear(last, own["1.weight"], own["1.bias"])


def gru_step(x: Tensor, u: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """PyTorch's GRU, from the inputs' and the states' products of its gates r, z and n."""
    (xr, xz, xn), (ur, uz, un) = x.chunk(3, -1), u.chunk(3, -1)
    r, z = (xr + ur).sigmoid(), (xz + uz).sigmoid()
    n = (xn + r * un).tanh()
    return (n + z * (states[0] - n),)


def lstm_step(x: Tensor, u: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """PyTorch's LSTM, from the inputs' and the states' products of its gates i, f, g and o."""
    i, f, g, o = (x + u).chunk(4, -1)
    c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


STEPS_OF: dict[str, Callable[..., tuple[Any, ...]]] = {"gru": gru_step, "lstm": lstm_step}
