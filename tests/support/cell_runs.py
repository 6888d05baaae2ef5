"""Runs drawn cells' layers forward, as a process of its own: `python cell_runs.py FILE`, of pickled cells.

Prints the numbers of those whose outputs are not PyTorch's of the same trees.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from cell_cases import DrawnCell
from cell_reference import walk_of_torch

import bppsa_cupy as bp


def is_right(drawn: DrawnCell) -> bool:
    net = bp.Sequential([bp.CellLayer(drawn.cell(), 2, 3)], (4, 2), dtype="float64", device="host")
    x = np.random.default_rng(1).standard_normal((5, 4, 2))
    own = {name.removeprefix("0."): torch.tensor(array) for name, array in net.state_dict().items()}

    def step(x, u, s, p):
        named = (drawn.gates, x), (drawn.gates, u), (drawn.states, s), (drawn.parameters, p.values())
        return drawn.formula(*(SimpleNamespace(**dict(zip(*each, strict=True))) for each in named))

    ends = torch.full((5,), 4)
    expected = walk_of_torch(
        step, own, "_l0", torch.tensor(x), ends, len(drawn.states), net.layers[0].unit_parameters, False
    )
    return np.allclose(net.forward(x), expected, 1e-11, 1e-12)


if __name__ == "__main__":
    cells = pickle.loads(Path(sys.argv[1]).read_bytes())
    print(*(number for number, drawn in enumerate(cells) if not is_right(drawn)))
