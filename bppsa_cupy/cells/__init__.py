"""Recurrent cells as definitions of one unit's step, of which the kernels' texts follow."""

from bppsa_cupy.cells.cell import Cell, relu, sigmoid, tanh
