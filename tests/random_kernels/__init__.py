"""The parts of the generator of random kernels: see `random_programs`."""
