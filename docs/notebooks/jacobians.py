# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Jacobians of a recurrent network
#
# For whoever studies what a network does to its gradients: the Jacobians of every step of an RNN are
# written to a file, read back as SciPy matrices, and multiplied over time. The products say whether a
# gradient reaches the steps where it is needed.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bppsa_cupy as bp

digits = load_digits()
x = digits.images[:8].reshape(8, 64, 1) / 16  # a pixel a step
labels = digits.target[:8]
print(x.shape, labels)

# %% [markdown]
# ## Written and read
#
# Three RNNs differ in one number alone: the radius of W_hh, an orthogonal matrix times that number. After a
# pass and its way back, `save_jacobians` writes a record a step: pattern, values, and where it stands.

# %%
units, folder = 20, Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
orthogonal = np.linalg.qr(rng.standard_normal((units, units)))[0]
radii = (0.8, 1.0, 1.2)
for radius in radii:
    layers = [bp.RNN(1, units, outputs="last"), bp.Linear(units, 10)]
    net = bp.Sequential(layers, input_shape=(64, 1), seed=0, dtype="float64", device="host")
    net.parameters["0.weight_hh_l0"][...] = radius * orthogonal
    loss, gradient = bp.cross_entropy(net.forward(x), labels)
    net.backward(gradient)
    bp.save_jacobians(folder / f"{radius}.h5", net)
    print(f"radius {radius}: {(folder / f'{radius}.h5').stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# A record holds (∂h_t/∂h_{t-1})ᵀ of all samples; `to_scipy` gives one sample's matrix.

# %%
records = [record for record in bp.load_jacobians(folder / "1.0.h5") if record.layer == 0]
print(len(records), "records;", records[7].label, records[7].pattern.shape, "samples:", records[7].batch)
matrix = records[7].to_scipy(sample=0)
slopes = matrix.toarray()[0] / orthogonal.T[0]  # J_tᵀ = W_hhᵀ diag(1 - h_t²)
print("1 - h² of the first units:", slopes[:5].round(3))

# %% [markdown]
# ## Products over time
#
# The gradient by the state at step t is the product of all later transposed Jacobians with the gradient by
# the last state. So the singular values of that product say by how much gradients shrink or grow on the way
# back.


# %%
def singular_values(path: Path, sample: int) -> np.ndarray:
    """Of the products from the last step back, (steps back, units), largest first."""
    steps = [record for record in bp.load_jacobians(path) if record.layer == 0]
    product, found = np.eye(units), []
    for record in reversed(sorted(steps, key=lambda record: record.step)):
        product = record.to_scipy(sample) @ product
        found.append(np.linalg.svd(product, compute_uv=False))
    return np.array(found)


spectra = {radius: singular_values(folder / f"{radius}.h5", sample=0) for radius in radii}
figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for axes, (radius, values) in zip(panels, spectra.items(), strict=True):
    axes.semilogy(values, color="tab:gray", linewidth=0.6)
    axes.semilogy(values[:, 0], color="tab:orange", linewidth=2)
    axes.set(title=f"radius {radius}", xlabel="steps back")
_ = panels[0].set_ylabel("singular values")
# %% [markdown]
# With radius 0.8 nothing is left of a gradient after some tens of steps: the network forgets. With 1.2 some
# directions keep their size, and tanh bends the others down. The slope of the largest one is the number to
# look at:

# %%
for radius, values in spectra.items():
    slope = float(np.polyfit(np.arange(len(values)), np.log(values[:, 0]), 1)[0])
    print(f"radius {radius}: the largest singular value changes by a factor of {np.exp(slope):.3f} a step")
