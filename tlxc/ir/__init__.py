"""Tile IR: types, values, ops, and the layouts of tiles."""
