"""Train the recurrence of leaky_rnn.py as a `bp.Cell`, with the kernels of bppsa-cupy."""

import sympy
import torch

import bppsa_cupy as bp
from bppsa_cupy.torch import CellLayer, jacobians

torch.manual_seed(0)
units, steps, samples = 64, 100, 32
W = 1.5 * torch.randn(units, units) / units**0.5
U, readout = torch.nn.Linear(1, units), torch.nn.Linear(units, 1)
x = torch.randn(steps, samples, 1)


def step(x, u, s, p):  # of one unit: x is its input, u what the other units send, s its state
    return {"h": 0.9 * s.h + 0.1 * sympy.tanh(x.h + u.h)}


rnn = CellLayer(bp.Cell("leaky", gates=["h"], states=["h"], step=step), 1, units)
rnn.load_state_dict(
    {"weight_ih_l0": U.weight, "weight_hh_l0": W, "bias_ih_l0": U.bias, "bias_hh_l0": torch.zeros(units)}
)
rnn.bias_hh_l0.requires_grad_(False)
optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=3e-3)
for epochs in (0, 100):
    for _ in range(epochs):
        loss = (readout(rnn(x)[1][-1]) - x[-40:-20].mean(0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    exponents = bp.lyapunov_exponents(jacobians(rnn, x)).mean(0)
    print(f"after {epochs} epochs the largest exponent is {exponents[0]:.4f} a step")
