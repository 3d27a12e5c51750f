"""Launching: drivers, argument binding, artifact cache."""
