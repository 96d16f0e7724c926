"""The engine's answer to a validation as violations."""

from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import Violation


def violations_of(answer: pb.ConfigValidation | pb.Failure) -> list[Violation]:
    """Every fault that the engine found; none when the config is valid."""
    if isinstance(answer, pb.Failure):
        return [Violation('config["connector.class"]', answer.message)]
    return [
        Violation(f'config["{value.key.name}"]', error)
        for value in answer.values
        for error in value.errors
    ]
