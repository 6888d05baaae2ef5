"""What `make numbers` measures: errors of float32, bits by threads, memory of long training, long chains."""
