"""Recurrent cells as definitions of one unit's step, of which the kernels' texts follow."""

from bppsa_cupy.cells.cell import Cell
from bppsa_cupy.cells.steps import relu, sigmoid, tanh
