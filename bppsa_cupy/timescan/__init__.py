"""Scans over time: one direction of one recurrent layer, on arrays (steps, rows, B); knows no layers."""

from bppsa_cupy.timescan.direction import kept_shapes, stack_shapes, suffix
from bppsa_cupy.timescan.forward import check_forward, choose_forward
from bppsa_cupy.timescan.sizes import StackSize, WalkSize
from bppsa_cupy.timescan.stack import Stack, StackPasses
from bppsa_cupy.timescan.state_gradients import output_gradients, state_gradients
from bppsa_cupy.timescan.walk import Walk
