"""Published stability analyses by bppsa-cupy and by hand: values and CPU times.

Run `OMP_NUM_THREADS=1 python docs/examples/stability.py OUT.json [TASK ...]`. The alternative of a task is a
short script in NumPy, JAX or PyTorch. Needs torch and jax.
"""

import json
import os
import platform
import re
import sys
import time
from functools import partial
from pathlib import Path

os.environ |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_ENABLE_X64": "1"}
os.environ["NUMBA_NUM_THREADS"] = "1"  # Numba's threads would set the number of PyTorch's, too
import jax
import jax.numpy as jnp
import numpy as np
import torch
from scipy.sparse.linalg import svds

import bppsa_cupy as bp
from bppsa_cupy.jax.tangents import JaxFlow
from bppsa_cupy.models import build_model
from bppsa_cupy.records.streaming import History
from bppsa_cupy.stability.exponents import flow_of
from bppsa_cupy.tools.torch_modules import torch_network
from bppsa_cupy.torch import lyapunov_exponents as differentiable_exponents

torch.set_num_threads(1)
TASKS = {}
rng = np.random.default_rng(0)


def task(*names):
    def add(function):
        TASKS.update({name: (function, name) for name in names})
        return function

    return add


def seconds(*calls, repeats=3):
    """The least CPU time of each call, in turn, and the last results; a first round does not count."""
    times, results = [[] for _ in calls], [None] * len(calls)
    for turn in range(repeats + 1):
        for number, call in enumerate(calls):
            start = time.process_time()
            results[number] = call()
            times[number] += [time.process_time() - start] * bool(turn)
    return [min(column) for column in times], results


def row(value, known, times, ours="", alternative=""):
    return {"value": value, "known": known, "seconds": times[0], "alternative": alternative,
            "alternative_seconds": times[1], "ours": ours}  # fmt: skip


def basis_of(size, count):
    return np.linalg.qr(np.random.default_rng(0).standard_normal((size, count)))[0]


def benettin(step, h, steps, q, burn_in=0):
    """The NumPy script: `step` returns the state and a function that maps tangent vectors."""
    count = q.shape[1]
    sums = np.zeros(count)
    for t in range(steps):
        h, push = step(h)
        q = push(q)
        if count == 1:
            r = np.linalg.norm(q)
            q, logs = q / r, np.log(r)
        else:
            q, r = np.linalg.qr(q)
            logs = np.log(np.abs(np.diag(r)))
        if t >= burn_in:
            sums += logs
    return sums / (steps - burn_in)


def by_step(name, step, h0, steps, known, count=None, burn_in=0, scale=1.0, shown=1, repeats=1):
    count = count or len(h0)
    times, (run, _) = seconds(
        lambda: bp.lyapunov_exponents(step, h0=h0, count=count, steps=steps, burn_in=burn_in),
        lambda: benettin(step, np.array(h0, float), steps, basis_of(len(h0), count), burn_in),
        repeats=repeats,
    )
    return row((scale * run.exponents[:shown]).tolist(), known, times, "step in NumPy", "NumPy script")


@task("Hénon")
def henon(name):
    def step(h):
        jacobian = np.array([[-2.8 * h[0], 1], [0.3, 0]])
        return np.array([1 - 1.4 * h[0] ** 2 + h[1], 0.3 * h[0]]), lambda q: jacobian @ q

    return by_step(name, step, [0.1, 0.1], 50_000, [0.4192, -1.6232], burn_in=100, shown=2)


@task("logistic map")
def logistic(name):
    step = lambda h: (4 * h * (1 - h), lambda q: (4 - 8 * h)[:, None] * q)  # noqa: E731
    return by_step(name, step, [0.3], 50_000, [np.log(2)])


@task("Lorenz, 2,000 time units")
def lorenz(name):
    def slope(h):
        x, y, z = h
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(h, dt=0.01):
        a = slope(h)
        b = slope(h + dt / 2 * a)
        c = slope(h + dt / 2 * b)
        return h + dt / 6 * (a + 2 * b + 2 * c + slope(h + dt * c))

    times, (run, _) = seconds(
        lambda: bp.lyapunov_exponents(step, h0=jnp.ones(3), steps=200_000, burn_in=2000),
        lambda: SCRIPTS.clear() or by_jax(step, jnp.ones(3), 200_000, np.eye(3)), repeats=1,  # both compile
    )  # fmt: skip
    known = [0.9056, 0, -14.5723]
    return row((100 * run.exponents).tolist(), known, times, "step in JAX", "jax.linearize script")


SCRIPTS = {}


def by_jax(step, h, steps, q):
    """The JAX script: linearize, scan, qr."""

    def move(carried, _):
        h, q = carried
        after, push = jax.linearize(step, h)
        q = jax.vmap(push, in_axes=-1, out_axes=-1)(q)
        if q.shape[1] == 1:
            norm = jnp.linalg.norm(q)
            return (after, q / norm), jnp.log(norm)[None]
        q, r = jnp.linalg.qr(q)
        return (after, q), jnp.log(jnp.abs(jnp.diag(r)))

    if (step, steps) not in SCRIPTS:
        SCRIPTS[step, steps] = jax.jit(lambda h, q: jax.lax.scan(move, (h, q), length=steps))
    return np.asarray(SCRIPTS[step, steps](h, jnp.asarray(q))[1].mean(0))


@task("Engelken's network, N = 100", "Engelken's network, N = 200", "Engelken's network, N = 500")
def engelken(name):
    size = int(name.split()[-1])
    weight = 10 * rng.standard_normal((size, size)) / size**0.5

    def step(h, dt=0.1):
        slope = 1 - np.tanh(h) ** 2
        moved = (1 - dt) * h + dt * weight @ np.tanh(h)
        return moved, lambda q: (1 - dt) * q + dt * (weight @ (slope[:, None] * q))

    steps = {100: 2000, 200: 1000, 500: 200}[size]
    found = by_step(name, step, rng.standard_normal(size), steps, None, burn_in=steps // 4)
    start, basis = np.random.default_rng(1).standard_normal(size), basis_of(size, size)
    run = bp.lyapunov_exponents(step, h0=start, steps=steps, basis=basis)
    found["known"] = [float(benettin(step, start, steps, basis).max())]
    return found | {"value": run.exponents[:1].tolist()}


@task("LSTM-128, 10 exponents")
def lstm(name):
    module, x = torch.nn.LSTM(8, 128).double(), torch.randn(200, 8, dtype=torch.float64)
    cell = torch.nn.LSTMCell(8, 128).double()
    cell.load_state_dict({key.removesuffix("_l0"): value for key, value in module.state_dict().items()})

    def script():
        h, sums = torch.zeros(256, dtype=torch.float64), 0
        q = torch.linalg.qr(torch.tensor(first))[0]
        for x_t in x:
            push = lambda h, x_t=x_t: torch.cat(cell(x_t, (h[:128], h[128:])), -1)  # noqa: E731
            move = lambda v, push=push, h=h: torch.func.jvp(push, (h,), (v,))  # noqa: E731
            h, q = torch.vmap(move, in_dims=1, out_dims=(None, 1))(q)
            q, r = torch.linalg.qr(q)
            sums = sums + r.diagonal().abs().log()
        return sums / len(x)

    first = np.linalg.qr(rng.standard_normal((256, 10)))[0]
    with torch.no_grad():
        times, (run, known) = seconds(
            lambda: bp.lyapunov_exponents(module, x, count=10, basis=first), script, repeats=2
        )
    return row(run.exponents[0], float(known.max()), times, "module", "torch.func script")


@task("flip-flop, stable points")
def flip_flop(name):
    bits, hidden = 3, 32
    net = bp.Sequential([bp.GRU(bits, hidden), bp.Linear(hidden, bits)], (60, bits), dtype="float64", seed=0)
    optimizer = bp.Adam(net.parameters, lr=5e-3)
    for number in range(1500):
        pulses = rng.choice([-1, 0, 1], (64, 60, bits), p=[0.05, 0.9, 0.05]).astype(float)
        pulses[:, 0] = rng.choice([-1, 1], (64, bits))
        last = np.maximum.accumulate(np.where(pulses != 0, np.arange(60)[:, None], 0), 1)
        targets = np.take_along_axis(pulses, last, 1)
        loss, gradient = bp.mse_loss(net.forward(pulses), targets)
        net.backward(gradient)
        optimizer.step(net.gradients)
        optimizer.lr = 5e-3 if number < 1000 else 1e-3
    alone = bp.Sequential([bp.GRU(bits, hidden)], (60, bits), dtype="float64")
    alone.load_state_dict({key: value for key, value in net.state_dict().items() if key[0] == "0"})
    states = np.array(alone.forward(pulses)).reshape(-1, hidden)
    candidates = states[rng.choice(len(states), 256, replace=False)]
    cell = torch.nn.GRUCell(bits, hidden).double().requires_grad_(False)
    weights = {key[2:].removesuffix("_l0"): torch.tensor(value) for key, value in alone.state_dict().items()}
    cell.load_state_dict(weights)
    tolerance = 2e-12**0.5  # that of q = residual² / 2 in fixed-point-finder

    def script():
        h, zeros = torch.tensor(candidates, requires_grad=True), torch.zeros(256, bits).double()
        adam = torch.optim.Adam([h], lr=0.05)
        rate = torch.optim.lr_scheduler.StepLR(adam, 500, 0.7)
        for _ in range(2000):
            adam.zero_grad()
            q = (cell(zeros, h) - h).square().sum(1) / 2
            q.mean().backward()
            adam.step()
            rate.step()
            if (q < 1e-12).all():
                break
        return q.detach().numpy()

    times, (found, q) = seconds(
        lambda: bp.fixed_points(alone, candidates, tolerance=tolerance), script, repeats=1
    )
    stable = int((found.is_fixed & found.is_stable).sum())
    return row(stable, 8, times, "network", "torch Adam loop") | {
        "loss": float(loss), "fixed": float(found.counts[found.is_fixed].sum() / 256),
        "fixed_by_alternative": float((q < 1e-12).mean()),
    }  # fmt: skip


def against_autograd(net, x, known, count=None, repeats=1):
    """The largest singular value end to end; the alternative is torch's Jacobian and SVD."""
    net.eval()
    model, x = torch_network(net).eval(), np.asarray(x, net.dtype)

    def ours():
        net.forward(x)
        records = net.transposed_jacobians()
        if count is None:
            return bp.depth_singular_values(records)[-1]
        return svds(bp.end_to_end(records), count, return_singular_vectors=False, rng=0)[::-1]

    def script():
        jacobian = torch.autograd.functional.jacobian(model, torch.tensor(x))
        return torch.linalg.svdvals(jacobian.reshape(-1, x.size)).numpy()

    times, (values, expected) = seconds(ours, script, repeats=repeats)
    compared = expected[: len(values)] if known is None else known
    difference = float(np.abs(values - compared).max())
    value = [float(values[0]), float(values[-1])] if count is None else float(values[0])
    shown = [float(compared[0]), float(compared[-1])] if count is None else float(compared[0])
    return row(value, shown, times, "records", "torch autograd and SVD") | {"largest_difference": difference}


@task("Sedghi, 64 channels of 4 × 4")
def sedghi(name):
    layers = [bp.Pad2d(1, "circular"), bp.Conv2d(64, 64, 3, bias=False)]
    net = bp.Sequential(layers, (64, 4, 4), dtype="float64", seed=0)
    kernel = np.fft.fft2(net.parameters["1.weight"], (4, 4), axes=(2, 3)).transpose(2, 3, 0, 1)
    known = np.sort(np.linalg.svd(kernel, compute_uv=False).ravel())[::-1]
    return against_autograd(net, np.zeros((1, 64, 4, 4)), known)


@task("isometry: 20 orthogonal layers of 200 units")
def isometry(name):
    net = bp.Sequential([bp.Linear(200, 200) for _ in range(20)], (200,), dtype="float64", seed=0)
    for layer in range(20):
        net.parameters[f"{layer}.weight"][...] = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    return against_autograd(net, rng.standard_normal((1, 200)), np.ones(200))


@task("VGG-11 pruned 97 %, end to end")
def vgg11(name):
    net = build_model("vgg11", seed=0, dtype="float64")
    bp.prune(net, 0.97)
    return against_autograd(net, rng.standard_normal((1, 3, 32, 32)), None, count=5)


@task("flossing, loss before and after")
def flossing(name):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(0.5 * torch.randn(32, 32).double() / 32**0.5)
    x, h0 = torch.randn(50, 32).double(), torch.zeros(32).double()
    adam, losses, start = torch.optim.Adam([weight], lr=0.02), [], time.process_time()
    for _ in range(15):
        loss = (
            differentiable_exponents(lambda x, h: torch.tanh(weight @ h + x), x, h0, count=8).square().mean()
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return row([losses[0], losses[-1]], "falls", [time.process_time() - start, None], "step in PyTorch")


SPEED = {"N = 1,000, k = 1": (1000, 1, 60), "N = 1,000, k = 10": (1000, 10, 16),
         "N = 1,000, k = 100": (1000, 100, 3), "N = 200, all": (200, 200, 12)}  # fmt: skip


@task(*SPEED)
def speed(name, rounds=31):
    """CPU time per step against the script: 31 chunks of steps, sides in turn; the median of their ratios."""
    size, count, steps = SPEED[name]
    weight = np.random.default_rng(0).standard_normal((size, size)) / size**0.5 * 1.5
    net = bp.Sequential([bp.RNN(1, size, bias=False)], (1, 1), dtype="float64", seed=0)
    net.parameters["0.weight_hh_l0"][...] = weight
    h0, w, wt = np.full(size, 0.1), jnp.asarray(weight), torch.tensor(weight)
    basis = basis_of(size, count)

    def step(h):
        h = np.tanh(weight @ h)
        slope = (1 - h**2)[:, None]
        return h, lambda q: slope * (weight @ q)

    in_jax = lambda h: jnp.tanh(w @ h)  # noqa: E731
    in_torch = lambda h: torch.tanh(wt @ h)  # noqa: E731

    def script_in_torch():
        h, q, sums = torch.tensor(h0), torch.tensor(basis).T.contiguous(), 0
        for _ in range(steps):
            if count == 1:
                h, v = torch.func.jvp(in_torch, (h,), (q[0],))
                r = torch.linalg.vector_norm(v)
                q, sums = (v / r)[None], sums + r.log()
                continue
            move = lambda v, h=h: torch.func.jvp(in_torch, (h,), (v,))  # noqa: E731
            h, q = torch.vmap(move, out_dims=(None, 0))(q)
            q, r = torch.linalg.qr(q.T)
            q, sums = q.T, sums + r.diagonal().abs().log()
        return sums / steps

    def ours(flow):
        flow.begin(np.ascontiguousarray(basis.T))
        history = History((count,), 1)
        return lambda: history.add(flow.advance(None, steps, 1), steps)

    calls = {
        "network": ours(flow_of(net, h0)),
        "NumPy script": partial(benettin, step, h0, steps, basis),
        "NumPy step": ours(flow_of(step, h0)),
        "JAX step": ours(JaxFlow(in_jax, jnp.asarray(h0))),
        "JAX script": partial(by_jax, in_jax, jnp.asarray(h0), steps, basis),
        "PyTorch step": ours(flow_of(in_torch, torch.tensor(h0))),
        "PyTorch script": script_in_torch,
    }
    times = {side: [] for side in calls}
    with torch.no_grad():
        for turn in range(rounds + 1):
            for side, call in calls.items():
                start = time.process_time()
                call()
                times[side] += [1e3 * (time.process_time() - start) / steps] * bool(turn)
    result = {"milliseconds per step": {side: float(np.median(column)) for side, column in times.items()}}
    rivals = ("network", "NumPy"), ("NumPy step", "NumPy"), ("JAX step", "JAX"), ("PyTorch step", "PyTorch")
    ratios = {side: np.divide(times[side], times[f"{rival} script"]) for side, rival in rivals}
    return result | {"times the script": {side: float(np.median(ratio)) for side, ratio in ratios.items()}}


@task("memory, N = 200, T = 10⁵ and 10⁶")
def memory(name):
    weight, peaks = 1.5 * rng.standard_normal((200, 200)) / 200**0.5, []

    def step(h):
        h = np.tanh(weight @ h)
        slope = (1 - h**2)[:, None]
        return h, lambda q: slope * (weight @ q)

    for steps in (10**5, 10**6):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        start = time.process_time()
        bp.lyapunov_exponents(step, h0=np.full(200, 0.1), count=1, steps=steps)
        peaks.append(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
    return {"peak MiB": peaks, "seconds": time.process_time() - start}


def main():
    path, *names = sys.argv[1:]
    about = {"machine": platform.machine(), "threads": 1, "time": "CPU seconds, least of several"}
    about |= {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
    rows = {}
    for function, name in TASKS.values():
        if not names or any(name.startswith(start) for start in names):
            rows[name] = function(name)
            print(name, json.dumps(rows[name]), flush=True)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"about": about, "rows": rows}, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
