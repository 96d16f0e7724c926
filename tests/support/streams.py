"""Standard inputs for commands."""

import io


class Terminal(io.StringIO):
    """A terminal at which a user typed an answer."""

    def isatty(self) -> bool:
        return True
