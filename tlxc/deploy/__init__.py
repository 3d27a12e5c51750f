"""What other programs need to launch compiled kernels: facts as JSON, and a C header."""
