"""The size limit of an input of ProduceRecords."""

from drover.errors import InvalidArgumentError, Reason

INPUT_BYTES_MAX = 64 * 1024 * 1024


def check_input_size(size_bytes: int) -> None:
    """Refuse an input of at least so many bytes if it is too large.

    Raises:
        InvalidArgumentError: TOO_LARGE.
    """
    if size_bytes > INPUT_BYTES_MAX:
        raise InvalidArgumentError(
            Reason.TOO_LARGE,
            f"the input has {size_bytes} bytes or more, the maximum is {INPUT_BYTES_MAX}: "
            "divide it",
        )
