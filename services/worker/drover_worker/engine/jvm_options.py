"""Options of JVMs in Spark's settings, which its launcher splits at blanks as a shell does."""

import re
import shlex

#: Options that decide in which form a JVM holds classes, and have no effect outside of it.
_OF_CLASSES = re.compile(
    r"-XX:[+-](Use\w+GC|UseCompressed(Oops|ClassPointers)|CompactStrings"
    r"|BytecodeVerification(Local|Remote)|Unlock(Experimental|Diagnostic)VMOptions)"
    r"|-XX:(ObjectAlignmentInBytes|TieredStopAtLevel)=\d+"
    r"|-Xverify(:\w+)?|-Xint"
)


def quoted(option: str) -> str:
    """One option, such as one with a path, quoted where Spark's launcher would split it."""
    return shlex.quote(option)


def split(options: str) -> list[str]:
    """The options in a setting.

    Raises:
        ValueError: A quotation mark has no pair.
    """
    return shlex.split(options)


def decides_classes(option: str) -> bool:
    """Whether an option decides in which form the JVM holds classes.

    No such option opens a port, writes a file, loads an agent or waits for a debugger: a second JVM
    can have it too.
    """
    return _OF_CLASSES.fullmatch(option) is not None
