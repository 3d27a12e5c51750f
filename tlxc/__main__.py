"""`python -m tlxc` is the command `tlxc`."""

from __future__ import annotations

from tlxc.cli import main

if __name__ == "__main__":
    main(prog_name="tlxc")
