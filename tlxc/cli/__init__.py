"""The command line: `tlxc compile inspect diff check trace run tune cache targets`.

Exit status: 0; 1 for an error in the kernel, in its file or in the tools, told in its own words; 2 for wrong usage.
Needs no GPU and opens no driver.  Each module holds one command or one group of them, which joins `main` when it is
imported.
"""

from . import cache, compile, diff, inspect, simulate, targets, tune  # noqa: F401  (they add their commands to `main`)
from .compile import resource_line
from .group import main
from .kernels import find_kernel, load_file

__all__ = ["find_kernel", "load_file", "main", "resource_line"]
