"""Target-neutral lowering of tile ops to per-thread LLVM IR."""
