"""CUDA C++ kernels run by g++ on the host: the executor that shows .cu texts right without a GPU."""
