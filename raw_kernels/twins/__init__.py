"""What Numba twins share."""
