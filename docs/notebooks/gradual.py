# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Accuracy against what is kept
#
# For whoever retrains: a LeNet-5 that learns handwritten digits is pruned at once, halfway, or gradually
# along a cubic (Zhu and Gupta 2017), and a network of few weights from the beginning on keeps its places or
# moves them (RigL, Evci et al. 2020). All have the same number of steps.

# %%
import matplotlib.pyplot as plt
import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.models import lenet5
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.settings import Settings

digits, EPOCHS, BATCH = load("digits"), 8, 32
steps = EPOCHS * -(-len(digits.train) // BATCH)


def new() -> bp.Sequential:
    return lenet5(input_shape=(1, 32, 32), seed=0, device="host")


def learn(
    net: bp.Sequential, epochs: int = EPOCHS, sparsity: bp.GradualPruning | bp.RigL | None = None
) -> float:
    """Training by Adam; the accuracy on the test images."""
    settings = Settings(method="bp", epochs=epochs, batch_size=BATCH, sparsity=sparsity)
    train(net, digits, bp.Adam(net.parameters, lr=2e-3), settings)
    return evaluate(net, digits.test, 64)[1]


# %% [markdown]
# ## At once and gradually

# %%
shares = [0.9, 0.95, 0.97]
at_once, gradually = [], []
for share in shares:
    net = new()
    learn(net, EPOCHS // 2)
    bp.prune(net, share)
    at_once.append(learn(net, EPOCHS // 2))
    schedule = bp.GradualPruning(share, until_step=steps * 3 // 4, from_step=steps // 8, every=10)
    net = new()
    gradually.append(learn(net, sparsity=schedule))
    print(f"{1 - share:.0%} kept: at once {at_once[-1]:.1%}, gradually {gradually[-1]:.1%}")

figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
kept = 100 * (1 - np.array(shares))
axes.plot(kept, at_once, "o-", label="at once")
axes.plot(kept, gradually, "o-", label="gradually")
axes.set(xlabel="weights kept, %", ylabel="test accuracy", xscale="log")
_ = axes.legend()

# %% [markdown]
# ## Few weights from the beginning on
#
# One weight of twenty stays, drawn at random. RigL drops the smallest of them now and then, and keeps others
# in their place, those that have the largest gradients.

# %%
found = {}
for name, sparsity in (("static", None), ("RigL", bp.RigL(until_step=steps * 3 // 4, every=20))):
    net, rng = new(), np.random.default_rng(0)
    sizes = {
        key: net.parameters[key].shape
        for key in ("0.weight", "3.weight", "7.weight", "9.weight", "11.weight")
    }
    net.set_masks({key: rng.random(shape) < 0.05 for key, shape in sizes.items()})
    before = net.masks
    found[name] = learn(net, sparsity=sparsity)
    moved = np.mean([np.mean(mask[before[key]] == 0) for key, mask in net.masks.items()])
    print(f"{name}: accuracy {found[name]:.1%}, {moved:.0%} of the places are others")
