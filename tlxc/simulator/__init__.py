"""The simulator: runs tile IR on the CPU with the asynchronous semantics of the machine."""
