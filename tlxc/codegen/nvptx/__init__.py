"""NVIDIA: intrinsics, inline PTX, assembling."""
