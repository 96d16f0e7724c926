"""The engine's answer to a validation as violations."""

from collections.abc import Sequence

from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import Caution, SkippedCheck, Violation

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


def add_violations(answer: pb.ConfigValidation, violations: Sequence[Violation]) -> None:
    """Add violations of settings to the engine's answer."""
    values = {f'config["{value.key.name}"]': value for value in answer.values}
    for each in violations:
        if each.field in values:
            values[each.field].errors.append(each.description)


def violations_on_all(
    answer: pb.ConfigValidation | pb.Failure, of_cluster: Sequence[Violation]
) -> list[Violation]:
    """As ``violations_of``, with the faults of classes on all workers.

    ``of_cluster`` may have cautions and skipped checks, which are no faults. Its fault of a missing
    class includes this worker, so the engine's fault of that class is left out.
    """
    lacking = [each for each in of_cluster if not isinstance(each, Caution | SkippedCheck)]
    fields = {each.field for each in lacking}
    if isinstance(answer, pb.Failure):
        missing = answer.plugin_not_found and _CLASS in fields
        return [*([] if missing else violations_of(answer)), *lacking]
    # connector.class has faults of other kinds too
    own = [each for each in violations_of(answer) if each.field not in fields - {_CLASS}]
    return [*own, *lacking]
