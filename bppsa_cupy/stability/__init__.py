"""Stability of recurrent systems: Lyapunov exponents along trajectories, and fixed points."""
