"""Scans over time: one direction of one recurrent layer, on arrays (steps, rows, B); knows no layers."""

from bppsa_cupy.timescan.cells import GRU, LSTM, RNN_RELU, RNN_TANH, Cell

__all__ = ["GRU", "LSTM", "RNN_RELU", "RNN_TANH", "Cell"]
