"""Texts of errors that plugin code raises; plugin code implements ``str()`` of them as well."""


def error_text(error: BaseException) -> str:
    """``str(error)``; plugin code implements it, so it may raise."""
    try:
        return str(error)
    except Exception as fault:  # noqa: BLE001 - plugin code
        return f"<no text: str() raised {type(fault).__name__}>"


def describe_error(error: BaseException) -> str:
    """The kind and the text of an error, in one line."""
    text = " ".join(error_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
