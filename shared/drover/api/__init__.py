"""The generated gRPC stubs. Below here everything comes from ``make proto``."""

try:
    import drover.api.common.v1  # noqa: F401
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError(
        "the gRPC stubs are not generated yet: run `make proto`", name=error.name
    ) from error
