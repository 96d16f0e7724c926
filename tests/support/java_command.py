"""How programs in Java that tests need are started."""

from pathlib import Path


def java_command(java: Path, *, heap_mib: int) -> list[str]:
    """The program and its first options; tuned to start soon, not to be fast for long."""
    return [
        str(java),
        f"-Xmx{heap_mib}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
    ]
