"""Streaming Lyapunov exponents: known values, one law for every kind of system, and runs that continue."""

import numpy as np
import pytest
from marks import some

import bppsa_cupy as bp

exponents = bp.lyapunov_exponents
S, B, T, F = 6, 3, 40, 2
RNG = np.random.default_rng(0)
W, U, X, H0 = (RNG.standard_normal(shape) for shape in ((S, S), (S, F), (T, B, F), (B, S)))


def numpy_step(x, h):
    h = np.tanh(h @ W.T + x @ U.T)
    return h, (1 - h**2)[..., None] * W


def numpy_jvp(x, h):
    h = np.tanh(h @ W.T + x @ U.T)
    return h, lambda q: (1 - h**2)[..., None] * (W @ q)


def network(layer, steps=T):
    net = bp.Sequential([layer], (steps, F), dtype="float64", device="host", seed=1)
    if isinstance(layer, bp.RNN):
        net.parameters["0.weight_hh_l0"][...], net.parameters["0.weight_ih_l0"][...] = W, U
        for name in ("ih", "hh"):
            net.parameters[f"0.bias_{name}_l0"][...] = 0
    return net


def by_torch(**options):
    torch = pytest.importorskip("torch")
    w, u = torch.tensor(W), torch.tensor(U)
    return exponents(lambda x, h: torch.tanh(h @ w.T + x @ u.T), torch.tensor(X), torch.tensor(H0), **options)


def by_module(**options):
    torch = pytest.importorskip("torch")
    module = torch.nn.RNN(F, S, bias=False).double()
    module.load_state_dict({"weight_hh_l0": torch.tensor(W), "weight_ih_l0": torch.tensor(U)})
    return exponents(module, torch.tensor(X), H0, **options)


def by_jax(**options):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return exponents(lambda x, h: jax.numpy.tanh(h @ W.T + x @ U.T), X, jax.numpy.asarray(H0), **options)


SYSTEMS = {
    "NumPy": lambda **options: exponents(numpy_step, X, H0, **options),
    "NumPy, iterator": lambda **options: exponents(numpy_jvp, iter(X), H0, **options),
    "network": lambda **options: exponents(network(bp.RNN(F, S)), X.swapaxes(0, 1), H0, **options),
    "PyTorch": by_torch,
    "PyTorch module": by_module,
    "JAX": by_jax,
}


def by_hand(jacobians, count, burn_in, basis):
    """Benettin's algorithm on one sample's J_t (T, S, S)."""
    sums, q = np.zeros(count), basis
    for t, jacobian in enumerate(jacobians):
        q, r = np.linalg.qr(jacobian @ q)
        sums += (t >= burn_in) * np.log(np.abs(np.diag(r)))
    return np.sort(sums / (len(jacobians) - burn_in))[::-1]


@pytest.mark.parametrize("count", some(4, long=[1, S]))
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_follows_benettin(system, count):
    basis = np.stack([np.linalg.qr(RNG.standard_normal((S, count)))[0] for _ in range(B)])
    result = SYSTEMS[system](count=count, burn_in=7, basis=basis)
    h, jacobians = H0, []
    for x in X:
        h, jacobian = numpy_step(x, h)
        jacobians.append(jacobian)
    for sample in range(B):
        expected = by_hand([J[sample] for J in jacobians], count, 7, basis[sample])
        np.testing.assert_allclose(result.exponents[sample], expected, rtol=0, atol=1e-7)
    assert result.history.shape == (T - 7, B, count) and result.steps == T - 7
    np.testing.assert_allclose(result.history[-1], result.exponents, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.asarray(result.state), h, rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.basis.swapaxes(1, 2) @ result.basis, [np.eye(count)] * B, atol=1e-12)


def leaky():
    sympy = pytest.importorskip("sympy")
    step = lambda x, u, s, p: {"h": 0.9 * s.h + 0.1 * sympy.tanh(x.h + u.h)}  # noqa: E731
    return bp.CellLayer(bp.Cell("leaky", gates=["h"], states=["h"], step=step), F, S)


LAYERS = {
    "GRU": lambda: bp.GRU(F, S),
    "LSTM": lambda: bp.LSTM(F, S),
    "cell": leaky,
    "two layers": lambda: bp.LSTM(F, S, num_layers=2),
}


@pytest.mark.parametrize("name", some(*(n for n in LAYERS if n != "cell"), long=["cell"]))
def test_layers_push_tangents_as_finite_differences_say(name):
    layer = LAYERS[name]()
    net, size = network(layer, 6), S * (4 if name == "two layers" else 2 if name == "LSTM" else 1)
    x, h = RNG.standard_normal((6, F)), np.zeros(size)
    result = exponents(net, x, basis=np.eye(size))
    q, sums, eps = np.eye(size), 0.0, 1e-6
    for x_t in x:
        around = np.concatenate([h + eps * np.eye(size), h - eps * np.eye(size), h[None]])
        after = exponents(net, np.tile(x_t, (len(around), 1, 1)), around, count=1).state
        jacobian = (after[:size] - after[size:-1]).T / (2 * eps)
        q, r = np.linalg.qr(jacobian @ q)
        h, sums = after[-1], sums + np.log(np.abs(np.diag(r)))
    np.testing.assert_allclose(result.exponents, -np.sort(-sums / 6), rtol=0, atol=1e-5)
    np.testing.assert_allclose(result.state, h, rtol=0, atol=1e-12)
    if name == "two layers":
        net.forward(x[None])
        states = net.last_pass.states[0]
        np.testing.assert_allclose(result.state.reshape(2, 2, S), np.stack(states, 1)[:, :, 0], atol=1e-12)


def test_a_matrix_beyond_the_cache_multiplies_state_and_tangent_together():
    net = bp.Sequential([bp.RNN(1, 301, bias=False)], (1, 1), dtype="float64", device="host", seed=2)
    weight, h, q = net.parameters["0.weight_hh_l0"], RNG.standard_normal(301), RNG.standard_normal(301)
    result, norms = exponents(net, h0=h, count=1, steps=6, basis=q[:, None]), [0.0]
    for _ in range(6):
        h = np.tanh(weight @ h)
        q = (1 - h**2) * (weight @ q)
        norms.append(np.log(np.linalg.norm(q)))
    np.testing.assert_allclose(result.stretches[:, 0], np.diff(norms), rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.state, h, rtol=0, atol=1e-12)


def henon(h):
    x, y = h
    return np.array([1 - 1.4 * x * x + y, 0.3 * x]), np.array([[-2.8 * x, 1], [0.3, 0]])


def test_henon_and_the_logistic_map_have_their_known_values():
    result = exponents(henon, h0=[0.1, 0.1], steps=20_000, burn_in=100)
    np.testing.assert_allclose(
        result.exponents, [0.4192, -1.6232], rtol=0, atol=4 * result.standard_error[0] + 1e-4
    )
    assert result.exponents.sum() == pytest.approx(np.log(0.3), abs=1e-9)
    assert result.kaplan_yorke_dimension == pytest.approx(1.2583, abs=5e-3)
    assert result.entropy == result.exponents[0] and len(result.history) <= 10_000
    assert 1e-4 < result.standard_error[0] < 1e-2
    logistic = exponents(lambda h: (4 * h * (1 - h), np.diag(4 - 8 * h)), h0=[0.3], steps=20_000, every=3)
    assert logistic.exponents[0] == pytest.approx(np.log(2), abs=4e-3)


def test_lorenz_has_its_known_values():
    """Runge and Kutta's step of 0.01 in JAX; exponents per unit of time."""
    jax = pytest.importorskip("jax")

    def slope(h):
        x, y, z = h
        return jax.numpy.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(h, dt=0.01):
        a = slope(h)
        b = slope(h + dt / 2 * a)
        c = slope(h + dt / 2 * b)
        return h + dt / 6 * (a + 2 * b + 2 * c + slope(h + dt * c))

    with jax.enable_x64(True):
        result = exponents(step, h0=jax.numpy.ones(3), steps=100_000, burn_in=2000, every=10)
    np.testing.assert_allclose(100 * result.exponents, [0.906, 0, -14.572], rtol=0, atol=0.02)


def test_a_run_continues_and_thins_its_history():
    full = exponents(henon, h0=[0.1, 0.1], steps=22_000)
    half = exponents(henon, h0=[0.1, 0.1], steps=12_000)
    rest = exponents(henon, h0=half.state, basis=half.basis, steps=10_000)
    joined = (12 * half.exponents + 10 * rest.exponents) / 22
    np.testing.assert_allclose(joined, full.exponents, rtol=1e-12)
    assert 5_000 <= len(full.history) <= 10_000 and full.ends[-1] == 22_000
    np.testing.assert_allclose(full.history[-1], full.exponents, rtol=1e-12)


def test_a_few_exponents_of_a_large_state_give_no_dimension():
    result = exponents(lambda h: (h, 2 * np.eye(3)), h0=np.ones(3), steps=4, count=2)
    assert np.isnan(result.kaplan_yorke_dimension) and np.isnan(result.entropy)
    lost = exponents(lambda h: (h, np.diag([2.0, 0.0])), h0=np.ones(2), steps=4, basis=np.eye(2))
    np.testing.assert_array_equal(lost.exponents, [np.log(2), -np.inf])


REFUSED = {
    "count": (lambda: exponents(henon, h0=[0.1, 0.1], steps=5, count=3), "count=3.*2"),
    "no steps": (lambda: exponents(henon, h0=[0.1, 0.1]), "steps"),
    "burn_in": (lambda: exponents(henon, h0=[0.1, 0.1], steps=5, burn_in=5), "burn_in=5.*5"),
    "h0": (lambda: exponents(henon, steps=5), "h0"),
    "no Jacobian": (lambda: exponents(lambda h: h, h0=[0.1, 0.1], steps=5), "Jacobian"),
    "basis": (lambda: exponents(henon, h0=[0.1, 0.1], steps=5, basis=np.eye(3)), r"\(3, 3\).*\(2, 2\)"),
    "two directions": (lambda: exponents(network(bp.RNN(F, S, bidirectional=True)), X), "unidirectional"),
    "input": (lambda: exponents(network(bp.RNN(F, S)), X[..., :1]), r"\(40, 1\).*\(40, 2\)"),
    "no system": (lambda: exponents(3, steps=5), "int"),
    "NumPy for a PyTorch step": (lambda: exponents(torch_step, h0=np.ones(2), steps=5), "h0"),
    "stored": (lambda: exponents(network_records(), h0=np.ones(6)), "h0"),
}


def torch_step(h):
    import torch

    return torch.tanh(h)


def network_records():
    net = network(bp.RNN(F, S))
    net.forward(X.swapaxes(0, 1))
    return net.transposed_jacobians()


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_do_not_fit_are_refused(case):
    call, message = REFUSED[case]
    with pytest.raises((bp.ArgumentError, bp.ShapeError), match=message):
        call()


def test_a_trajectory_that_diverges_is_refused():
    with pytest.raises(bp.NonFiniteError, match="diverges"), np.errstate(all="ignore"):
        exponents(henon, h0=[100.0, 0.1], steps=50)
