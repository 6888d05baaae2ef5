"""What the machine code of kernels says: compiled by NVRTC, read by nvdisasm, walked without a GPU."""
