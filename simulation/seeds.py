"""How seeds are written: with the version of the simulation, because a change gives all seeds
another meaning.
"""

#: Raised when a change gives seeds another meaning.
VERSION = 3


def seed_text(seed: int) -> str:
    """A seed as it is shown, and given to replay it: 3-17."""
    return f"{VERSION}-{seed}"


def parse_seed(text: str) -> int:
    """The number of a seed.

    Raises:
        ValueError: It is no seed, or is of another version; the message has the remedy.
    """
    version, _, number = text.rpartition("-")
    if not number.isdecimal() or (version and not version.isdecimal()):
        raise ValueError(f"{text!r} is not a seed, such as {seed_text(17)}")
    if not version or int(version) != VERSION:
        raise ValueError(
            f"seed {text} is of {f'version {version}' if version else 'the first version'} of the"
            f" simulation, and seeds have another meaning in version {VERSION}: replay it with the"
            " code that found it"
        )
    return int(number)
