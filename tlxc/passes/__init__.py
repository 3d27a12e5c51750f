"""Passes over tile IR: functions `(Module, Target) -> None`, each with its invariant in the docstring."""
