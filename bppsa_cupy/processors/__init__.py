"""Cost models of processors, by which recurrent layers and convolutions choose how they compute."""
