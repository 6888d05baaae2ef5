"""The four kernels of every recurrent cell, as frames that a cell's form fills."""
