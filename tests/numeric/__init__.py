"""The numeric matrix: every op, dtype and number of warps, on the emulator and on the GPU."""
