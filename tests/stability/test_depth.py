"""End-to-end Jacobians of feed-forward networks, and singular values of long products."""

import numpy as np
import pytest

import bppsa_cupy as bp

RNG = np.random.default_rng(0)


def orthogonal(size):
    return np.linalg.qr(RNG.standard_normal((size, size)))[0]


def test_orthogonal_layers_have_singular_values_of_one():
    net = bp.Sequential([bp.Linear(6, 6), bp.Linear(6, 6)], (6,), dtype="float64", device="host")
    for name in ("0.weight", "1.weight"):
        net.parameters[name][...] = orthogonal(6)
    net.forward(RNG.standard_normal((2, 6)))
    for values in bp.depth_singular_values(net.transposed_jacobians(), sample=1):
        np.testing.assert_allclose(values, 1, rtol=1e-12)


NETWORKS = {
    "plain": lambda: [bp.Conv2d(1, 3, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(12, 5)],
    "residual": lambda: [
        bp.Conv2d(1, 2, 3), bp.ReLU(),
        bp.Residual([bp.Pad2d(1, "circular"), bp.Conv2d(2, 2, 3), bp.Residual([bp.Tanh()])]),
        bp.Residual([bp.Conv2d(2, 4, 2, 2), bp.Tanh()], [bp.PadShortcut(4)]), bp.Flatten(), bp.Linear(16, 5),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_products_along_depth_are_those_of_autograd(name):
    torch = pytest.importorskip("torch")
    from bppsa_cupy.tools.torch_modules import torch_network

    net = bp.Sequential(NETWORKS[name](), (1, 6, 6), dtype="float64", device="host", seed=2)
    x = RNG.standard_normal((3, 1, 6, 6))
    net.forward(x)
    records, model, expected = net.transposed_jacobians(), torch_network(net), []
    for end, layer in enumerate(net.layers, 1):
        if not isinstance(layer, bp.Flatten):
            jacobian = torch.autograd.functional.jacobian(model[:end], torch.tensor(x[2:]))
            product = jacobian.numpy().reshape(-1, 36)
            expected.append(np.linalg.svd(product, compute_uv=False))
    operator = bp.end_to_end(records, sample=2)
    np.testing.assert_allclose(operator @ np.eye(36), product, atol=1e-12)
    np.testing.assert_allclose(operator.H @ np.eye(5), product.T, atol=1e-12)
    spectra = bp.depth_singular_values(records, sample=2)
    largest = bp.depth_singular_values(records, sample=2, count=3)
    for values, few, wanted in zip(spectra, largest, expected, strict=True):
        np.testing.assert_allclose(values, wanted, atol=1e-12)
        np.testing.assert_allclose(few, wanted[:3], rtol=1e-8)


def test_a_circular_convolution_has_the_singular_values_of_its_fourier_transform():
    """Sedghi, Gupta & Long 2019: those of a matrix (outputs, inputs) per frequency."""
    side, channels = 4, 64
    layers = [bp.Pad2d(1, "circular"), bp.Conv2d(channels, channels, 3, bias=False)]
    net = bp.Sequential(layers, (channels, side, side), dtype="float64", device="host", seed=0)
    net.forward(np.zeros((1, channels, side, side)))
    kernel = np.fft.fft2(net.parameters["1.weight"], (side, side), axes=(2, 3))
    expected = np.sort(np.linalg.svd(kernel.transpose(2, 3, 0, 1), compute_uv=False).ravel())[::-1]
    _, values = bp.depth_singular_values(net.transposed_jacobians())
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_records_that_are_no_chain_are_refused():
    net = bp.Sequential([bp.RNN(2, 3)], (4, 2), dtype="float64", device="host")
    net.forward(np.ones((1, 4, 2)))
    other = bp.Sequential(NETWORKS["residual"](), (1, 6, 6), dtype="float64", device="host")
    other.forward(np.ones((1, 1, 6, 6)))
    blocks = list(other.transposed_jacobians())
    for records in (net.transposed_jacobians(), [], blocks[:2] + blocks[-1:], blocks[-4:-2] + blocks[-1:]):
        with pytest.raises((bp.ArgumentError, bp.ShapeError), match="pass"):
            bp.end_to_end(records)


@pytest.mark.parametrize("values", [[2.0, 1.5, 1, 0.7, 0.1], [2.0, 2, 1, 1, 0.5], [3.0, 1, 0.5, 0.2, 1e-3]])
def test_small_singular_values_of_long_products_are_exact(values):
    """The product of O_{t+1} D O_tᵀ over 60 steps has the singular values D⁶⁰."""
    turns, steps = [orthogonal(5) for _ in range(61)], 60
    jacobians = np.array([turns[t + 1] @ np.diag(values) @ turns[t].T for t in range(steps)])
    logs = bp.log_singular_values(jacobians[:, None])
    np.testing.assert_allclose(logs, [steps * np.log(values)], rtol=1e-12, atol=1e-10)


def test_log_singular_values_of_a_short_product():
    jacobians = RNG.standard_normal((5, 2, 4, 4))
    for sample in range(2):
        product = np.linalg.multi_dot(jacobians[::-1, sample])
        expected = np.log(np.linalg.svd(product, compute_uv=False))
        np.testing.assert_allclose(bp.log_singular_values(jacobians)[sample], expected, atol=1e-9)


def test_flossing_moves_exponents_to_zero():
    """Gradient descent on the squares of the first exponents, through bppsa_cupy.torch (Engelken 2023)."""
    torch = pytest.importorskip("torch")
    from bppsa_cupy.torch import lyapunov_exponents

    torch.manual_seed(0)
    weight = torch.nn.Parameter(0.5 * torch.randn(8, 8, dtype=torch.float64) / 8**0.5)
    x, h0 = torch.randn(20, 8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
    step, optimizer, losses = lambda x, h: torch.tanh(weight @ h + x), torch.optim.Adam([weight], lr=0.02), []
    alone = lyapunov_exponents(lambda h: step(x[0], h), None, h0, count=3, steps=9)
    assert torch.equal(alone, lyapunov_exponents(step, x[:1].expand(9, 8), h0, count=3))
    for _ in range(12):
        loss = lyapunov_exponents(step, x, h0, count=3).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
