"""Processors: what walks over time and convolutions take on each, by which their way is chosen."""
