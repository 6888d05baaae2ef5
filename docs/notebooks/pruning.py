# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A pruned network
#
# For whoever prunes: a LeNet-5 learns handwritten digits, loses nine of ten weights, and learns again with
# what is left. A pruned weight is gone from the Jacobians' patterns too, so every product over them gets
# cheaper.

# %%
import matplotlib.pyplot as plt
import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.models import lenet5

digits = load("digits")
net = lenet5(input_shape=(1, 32, 32), seed=0, device="host")
print(len(digits.train), "images to learn from,", len(digits.test), "to test")


# %%
def learn(epochs: int) -> list[float]:
    """Training by Adam; the losses."""
    adam, losses = bp.Adam(net.parameters, lr=2e-3), []
    for epoch in range(epochs):
        for inputs, labels, _ in batches(digits.train, 32, epoch=epoch):
            loss, gradient = bp.cross_entropy(net.forward(inputs), labels)
            net.backward(gradient, method="bp")
            adam.step(net.gradients)
            losses.append(float(loss))
    return losses


def accuracy() -> float:
    """Of the test images."""
    right = [
        net.forward(x).argmax(axis=1) == labels for x, labels, _ in batches(digits.test, 64, shuffle=False)
    ]
    return float(np.concatenate(right).mean())


def entries() -> dict[str, int]:
    """Entries of each layer's Jacobian."""
    return {record.label: record.pattern.nnz for record in net.transposed_jacobians()}


first = learn(3)
before, dense = accuracy(), entries()
print(f"accuracy {before:.1%}")

# %% [markdown]
# ## Pruned
#
# `bp.prune` takes the smallest weights of each layer, and sets masks that hold them at 0 from then on,
# whatever the optimizer does.

# %%
bp.prune(net, 0.9)
cut, sparse = accuracy(), entries()
print(f"accuracy {cut:.1%}")
for label in dense:
    if sparse[label] < dense[label]:
        print(f"{label:12} {dense[label]:>9,} entries, now {sparse[label]:>7,}")

# %% [markdown]
# ## Trained again

# %%
second = learn(4)
after = accuracy()
zeros = {name: float((mask == 0).mean()) for name, mask in net.masks.items()}
print(f"accuracy {before:.1%}, pruned {cut:.1%}, trained again {after:.1%}")
print({name: f"{share:.0%}" for name, share in zeros.items()})

figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
axes.plot(first, label="all weights")
axes.plot(np.arange(len(second)) + len(first), second, label="a tenth of them")
axes.set(xlabel="step", ylabel="cross entropy")
_ = axes.legend()
# %% [markdown]
# ## What the scan has left to do
#
# A plan follows from the masks. It is made once, and its schedules say what each costs: here the gradients
# of the pruned network by the scan, serially and as `auto` takes it to be the quickest.

# %%
net.use(net.plan(batch_size=32, schedules=["linear", "hybrid"]))
inputs, labels, _ = next(batches(digits.train, 32))
_, gradient = bp.cross_entropy(net.forward(inputs), labels)
net.backward(gradient, method="bp")
expected = net.gradients.to_host()
net.backward(gradient, method="hybrid")
worst = max(
    float(np.linalg.norm(found - expected[name]) / np.linalg.norm(expected[name]))
    for name, found in net.gradients.to_host().items()
)
print(f"by {net.last_backward.schedules[0]}: within {worst:.0e} of back-propagation")

# %% [markdown]
# The Jacobian of the second convolution for one image: what is drawn is what a product has to visit.

# %%
record = next(
    record for record in net.transposed_jacobians() if record.label.endswith("Conv2d") and record.layer > 0
)
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
axes.spy(record.to_scipy(sample=0), markersize=0.4, aspect="auto", rasterized=True)
_ = axes.set_title(f"{record.label}: {record.pattern.nnz:,} of {np.prod(record.pattern.shape):,} entries")
