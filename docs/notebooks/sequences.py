# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A sequence classifier
#
# For whoever models sequences: a GRU learns to tell bitstreams of ten classes apart, some longer than
# others. A stream of class c has a set bit with probability 0.05 + 0.1 c at every step (the paper's task,
# equation 8).

# %%
import matplotlib.pyplot as plt
import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data.bitstream import make_bitstreams

steps = 200
train, test = make_bitstreams(steps, 1024), make_bitstreams(steps, 256, split=1)
print(train.inputs.shape, train.labels[:5])
print(train.inputs[:2, :40, 0])

# %% [markdown]
# ## The network
#
# Layers take PyTorch's arguments. `outputs="last"` hands on the last state alone; `input_shape=(None, 1)`
# takes sequences of any length.

# %%
net = bp.Sequential([bp.GRU(1, 20, outputs="last"), bp.Linear(20, 10)], input_shape=(None, 1), seed=0)
print(net)

# %% [markdown]
# ## Training
#
# Lengths say where samples end: what stands behind is not read. A gradient comes back from the loss alone;
# `backward` fills `net.gradients`, from which the optimizer steps.

# %%
adam = bp.Adam(net.parameters, lr=1e-2)
rng = np.random.default_rng(0)
losses = []
for _ in range(160):
    chosen = rng.integers(0, len(train.labels), 32)
    x, labels = train.inputs[chosen].astype(np.float32), train.labels[chosen]
    lengths = rng.integers(steps // 2, steps + 1, 32)
    loss, gradient = bp.cross_entropy(net.forward(x, lengths=lengths), labels)
    net.backward(gradient)
    bp.clip_grad_norm(net.gradients, 1.0)
    adam.step(net.gradients)
    losses.append(float(loss))

figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
axes.plot(losses)
_ = axes.set(xlabel="step", ylabel="cross entropy", title="A GRU of 20 units on bitstreams")
# %%
scores = net.forward(test.inputs.astype(np.float32))
guessed = scores.argmax(axis=1)
accuracy = float((guessed == test.labels).mean())
print(
    f"right: {accuracy:.0%}; off by one class at most: {float((abs(guessed - test.labels) <= 1).mean()):.0%}"
)

# %% [markdown]
# Classes beside each other differ by 0.1 in their share of set bits, which 200 bits show with a standard
# deviation of up to 0.035: not even the best classifier is always right.
#
# ## Which way over time
#
# The backward pass runs step by step, or as a scan over chunks of steps. With `auto` a CPU runs it serially.
# Gradients are the same, up to rounding.

# %%
x, labels = test.inputs[:32].astype(np.float32), test.labels[:32]
_, gradient = bp.cross_entropy(net.forward(x), labels)
found = {}
for method in ("bp", "blelloch"):
    net.backward(gradient, method=method)
    found[method] = net.gradients.to_host()
    print(f"{method:9}", net.last_backward.backward_ways[0])
name = "0.weight_hh_l0"
difference = float(
    np.linalg.norm(found["blelloch"][name] - found["bp"][name]) / np.linalg.norm(found["bp"][name])
)
print(f"relative difference of {name}: {difference:.0e}")

# %% [markdown]
# ## A long sequence in pieces
#
# States go in and out, so a stream can be read as it comes.

# %%
stream = make_bitstreams(10_000, 1, seed=3)
states = None
for begin in range(0, 10_000, 1_000):
    piece = stream.inputs[:, begin : begin + 1_000].astype(np.float32)
    scores = net.forward(piece, states=states)
    states = {0: net.last_pass.states[0]}
whole = net.forward(stream.inputs.astype(np.float32))
print("the scores of one pass over all of it:", np.allclose(scores, whole, atol=1e-5))
