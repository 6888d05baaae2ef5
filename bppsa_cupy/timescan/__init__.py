"""Scans over time: one direction of one recurrent layer, on arrays (steps, rows, B); knows no layers."""

from bppsa_cupy.timescan.forward import choose_forward
from bppsa_cupy.timescan.stack import Stack, kept_shapes, suffix
from bppsa_cupy.timescan.ways import StackSize, Walk, WalkSize
