"""Tile IR to LLVM IR, and on to cubin or hsaco."""
