"""What a training step launches on a GPU, counted without one."""
