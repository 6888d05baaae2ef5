"""The frames' CUDA C++ texts, which a cell's struct fills."""
