"""Train a leaky RNN written in PyTorch. Draw its Lyapunov exponents and spectra before and after training."""

import matplotlib.pyplot as plt
import torch

import bppsa_cupy as bp
from bppsa_cupy.torch import jacobians

torch.manual_seed(0)
units, steps, samples = 64, 100, 32
W = torch.nn.Parameter(1.5 * torch.randn(units, units) / units**0.5)
U, readout = torch.nn.Linear(1, units), torch.nn.Linear(units, 1)
optimizer = torch.optim.Adam([W, *U.parameters(), *readout.parameters()], lr=3e-3)
x, h0 = torch.randn(steps, samples, 1), torch.zeros(samples, units)


def step(x, h):  # a unit forgets a tenth of its state in a step
    return 0.9 * h + 0.1 * torch.tanh(U(x) + h @ W.T)


figure, (above, below) = plt.subplots(2, 2, figsize=(9, 6), sharey="row", layout="constrained")
for column, epochs in enumerate((0, 100)):
    for _ in range(epochs):
        h = h0
        for x_t in x:
            h = step(x_t, h)
        loss = (readout(h) - x[-40:-20].mean(0)).square().mean()  # what came 20 to 40 steps ago
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    records = jacobians(step, x, h0)
    exponents = bp.lyapunov_exponents(records).mean(0)
    above[column].plot(exponents, "o-")
    below[column].semilogy(bp.singular_values(records).mean(1))
    print(f"after {epochs} epochs the largest exponent is {exponents[0]:.4f} a step")
above[0].set(ylabel="exponents a step"), below[0].set(ylabel="singular values", xlabel="step")
figure.savefig("leaky_rnn.png")
