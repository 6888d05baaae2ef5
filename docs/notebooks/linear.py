# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # When a linear recurrence is enough
#
# For whoever chooses a layer: a minGRU's state is a running mean whose weights its input sets,
# h = (1 - z) h + z h̃, so that all steps can be scanned at once. A GRU's gates read the state itself. Two
# tasks on bits show what that costs, and what it saves.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import bppsa_cupy as bp

layers = {"MinGRU": bp.MinGRU, "GRU": bp.GRU}


def trained(kind, make, steps, updates):
    """A network of one recurrent layer, trained on batches that `make` draws; the share of right labels as it
    learns, and seconds an update."""
    net = bp.Sequential([layers[kind](1, 32), bp.Linear(32, 2)], input_shape=(steps, 1), seed=0)
    adam = bp.Adam(net.parameters, lr=1e-2)
    rng, right = np.random.default_rng(0), []
    began = None
    for _ in range(updates):
        bits, labels = make(rng, steps)
        scores = net.forward(bits)
        _, gradient = bp.cross_entropy(scores, labels)
        net.backward(gradient)
        bp.clip_grad_norm(net.gradients, 1.0)
        adam.step(net.gradients)
        right.append(float((scores.argmax(-1) == labels)[:, -1].mean()))
        began = began or time.perf_counter()  # the first update compiles
    return net, right, (time.perf_counter() - began) / (updates - 1)


# %% [markdown]
# ## What came more often
#
# At each step: were there more ones or zeros so far? A running mean answers that, and so a linear recurrence.


# %%
def majority(rng, steps):
    bits = (rng.random((32, steps, 1)) < rng.choice([0.35, 0.65], (32, 1, 1))).astype(np.float32)
    return bits, (bits[..., 0].cumsum(1) > np.arange(1, steps + 1) / 2).astype(np.int64)


found = {kind: trained(kind, majority, 500, 200) for kind in layers}
for kind, (_, right, seconds) in found.items():
    print(f"{kind:6}  {np.mean(right[-10:]):.0%} right at the last step, {seconds * 1e3:.1f} ms an update")

# %% [markdown]
# Both learn it, and the minGRU's updates take less: its passes over time are one scan each, without a product
# with W_hh at every step.
#
# ## What only the state can tell
#
# Is the number of ones so far odd? The answer turns over with each one, whatever it was: a step must read its
# own state. All that a running mean can tell of it is the first few bits.


# %%
def parity(rng, steps):
    bits = rng.integers(0, 2, (32, steps, 1)).astype(np.float32)
    return bits, bits[..., 0].cumsum(1).astype(np.int64) % 2


odd = {kind: trained(kind, parity, 16, 500) for kind in layers}
figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained", sharey=True)
for panel, (title, results) in zip(axes, {"majority": found, "parity": odd}.items(), strict=True):
    for kind, (_, right, _) in results.items():
        panel.plot(np.convolve(right, np.ones(10) / 10, "valid"), label=kind)
    panel.set(title=title, xlabel="update")
axes[0].set(ylabel="right at the last step")
_ = axes[1].legend()

# %%
for kind, (_, right, _) in odd.items():
    print(f"{kind:6}  {np.mean(right[-50:]):.0%} right at the last of 16 steps")

# %% [markdown]
# ## What gradients do
#
# A minGRU's Jacobians are diagonal, with entries 1 - z between 0 and 1: no exponent is above 0, so gradients
# never blow up, however long the sequence. A GRU has no such bound.

# %%
exponents = {}
for kind, (net, _, _) in found.items():
    net.forward(majority(np.random.default_rng(1), 500)[0][:4])
    exponents[kind] = bp.lyapunov_exponents(net.transposed_jacobians().where(layer=0), count=1)
    print(f"{kind:6}  largest exponent {np.max(exponents[kind]):+.4f} a step")

# %% [markdown]
# **So**: take a linear recurrence where what counts is how much of what came when, as in long streams and,
# stacked with maps between, in language; take a GRU or an LSTM where one layer must toggle, count or compare
# by its own state.
