"""The engine's answer to a validation as violations."""

from collections.abc import Iterable

from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import Violation

_CLASS = 'config["connector.class"]'


def violations_of(answer: pb.ConfigValidation | pb.Failure) -> list[Violation]:
    """Every fault that the engine found; none when the config is valid."""
    if isinstance(answer, pb.Failure):
        return [Violation(_CLASS, answer.message)]
    return [
        Violation(f'config["{value.key.name}"]', error)
        for value in answer.values
        for error in value.errors
    ]


def without_missing(
    answer: pb.ConfigValidation | pb.Failure, lacking: Iterable[Violation]
) -> list[Violation]:
    """As ``violations_of`` without the faults of classes that ``lacking`` reports for all workers,
    this one included.
    """
    fields = {each.field for each in lacking}
    if isinstance(answer, pb.Failure):
        missing = answer.plugin_not_found and _CLASS in fields
        return [] if missing else violations_of(answer)
    # connector.class has faults of other kinds too
    return [each for each in violations_of(answer) if each.field not in fields - {_CLASS}]
