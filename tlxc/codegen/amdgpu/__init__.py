"""AMD: intrinsics, objects, linking."""
