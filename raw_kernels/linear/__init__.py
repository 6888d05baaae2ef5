"""Frames of a linear cell's kernels, elementwise over rows, a sample's step each, and units."""
