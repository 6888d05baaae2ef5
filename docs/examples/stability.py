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
import jax
import jax.numpy as jnp
import numpy as np
import torch
from scipy.sparse.linalg import svds

import bppsa_cupy as bp
from bppsa_cupy.jax.tangents import JaxFlow
from bppsa_cupy.models import build_model
from bppsa_cupy.records.streaming import stream
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


def benettin(step, h, steps, count, burn_in=0):
    """The NumPy script: `step` returns the state and a function that maps tangent vectors."""
    q, sums = np.linalg.qr(np.random.default_rng(0).standard_normal((h.size, count)))[0], np.zeros(count)
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
        lambda: benettin(step, np.array(h0, float), steps, count, burn_in),
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
        lambda: by_jax(step, jnp.ones(3), 200_000, 3), repeats=1,
    )  # fmt: skip
    known = [0.9056, 0, -14.5723]
    return row((100 * run.exponents).tolist(), known, times, "step in JAX", "jax.linearize script")


SCRIPTS = {}


def by_jax(step, h, steps, count, x=None):
    """The script: linearize, scan, qr."""

    def move(carried, _):
        h, q = carried
        after, push = jax.linearize(step, h)
        q = jax.vmap(push, in_axes=-1, out_axes=-1)(q)
        if count == 1:
            norm = jnp.linalg.norm(q)
            return (after, q / norm), jnp.log(norm)[None]
        q, r = jnp.linalg.qr(q)
        return (after, q), jnp.log(jnp.abs(jnp.diag(r)))

    if (step, steps) not in SCRIPTS:
        SCRIPTS[step, steps] = jax.jit(lambda h, q: jax.lax.scan(move, (h, q), length=steps))
    q = jnp.linalg.qr(jnp.asarray(np.random.default_rng(0).standard_normal((len(h), count))))[0]
    return np.asarray(SCRIPTS[step, steps](h, q)[1].mean(0))


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
    start = np.random.default_rng(1).standard_normal(size)
    run = bp.lyapunov_exponents(step, h0=start, steps=steps)
    found["known"] = [float(benettin(step, start, steps, size)[0])]
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


SPEED = {"N = 1,000, k = 1": (1000, 1, 250), "N = 1,000, k = 10": (1000, 10, 80),
         "N = 1,000, k = 100": (1000, 100, 25), "N = 200, all": (200, 200, 80)}  # fmt: skip


@task(*SPEED)
def speed(name):
    """CPU time per step of networks, steps and scripts: runs of three times the steps less those of once."""
    size, count, steps = SPEED[name]
    weight = np.random.default_rng(0).standard_normal((size, size)) / size**0.5 * 1.5
    net = bp.Sequential([bp.RNN(1, size, bias=False)], (1, 1), dtype="float64", seed=0)
    net.parameters["0.weight_hh_l0"][...] = weight
    h0, w, wt = np.full(size, 0.1), jnp.asarray(weight), torch.tensor(weight)

    def step(h):
        h = np.tanh(weight @ h)
        slope = (1 - h**2)[:, None]
        return h, lambda q: slope * (weight @ q)

    in_jax = lambda h: jnp.tanh(w @ h)  # noqa: E731
    in_torch = lambda h: torch.tanh(wt @ h)  # noqa: E731

    def script_in_torch(steps):
        h, sums = torch.tensor(h0), 0
        q = torch.linalg.qr(torch.tensor(np.random.default_rng(0).standard_normal((size, count))))[0]
        q = q.T.contiguous()
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

    flow = JaxFlow(in_jax, jnp.asarray(h0))  # compiled once for all runs, as the script
    found = []
    for length in (steps, 3 * steps):
        run = partial(bp.lyapunov_exponents, count=count, steps=length)
        with torch.no_grad():
            times, _ = seconds(
                lambda run=run: run(net, h0=h0),
                lambda run=run: run(step, h0=h0),
                lambda length=length: benettin(step, h0, length, count),
                lambda length=length: stream(flow, None, length, count=count, burn_in=0, every=1),
                lambda length=length: by_jax(in_jax, jnp.asarray(h0), length, count),
                lambda run=run: run(in_torch, h0=torch.tensor(h0)),
                lambda length=length: script_in_torch(length),
                repeats=2,
            )
        found.append(times)
    libraries = ["NumPy step", "NumPy script", "JAX step", "JAX script", "PyTorch step", "PyTorch script"]
    per_step = 1e3 * (np.array(found[1]) - found[0]) / (2 * steps)
    return {"milliseconds per step": dict(zip(["network", *libraries], per_step.tolist(), strict=True))}


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
