"""The one exception of the emulator."""

from __future__ import annotations


class EmulatorError(Exception):
    """A kernel did something the hardware would not define, or used something the emulator does not know.

    `located` is true once the text names the LLVM line, so that outer frames do not add it again.
    """

    def __init__(self, message: str, located: bool = False) -> None:
        super().__init__(message)
        self.located = located
