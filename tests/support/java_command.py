"""The command line of Java programs that tests need."""

from pathlib import Path


def java_command(java: Path, *, heap_mib: int) -> list[str]:
    """The program and its first options, tuned for a fast start."""
    return [
        str(java),
        f"-Xmx{heap_mib}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
    ]
