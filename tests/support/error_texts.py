"""Texts of errors with their causes."""


def logged(error: BaseException | None) -> str:
    """What a log with the traceback shows of an error and its causes."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)
