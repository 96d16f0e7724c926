"""The dead letters that a request selects; pure."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import Violation

_CONDITIONS_MAX = 20
_LETTERS_MAX = 1_000

Selection = pb.ReplayDeadLettersRequest | pb.DiscardDeadLettersRequest


def selection_faults(request: Selection) -> list[Violation]:
    """What is wrong with the selection of a request."""
    faults = []
    if request.start_offset < 0:
        faults.append(Violation("start_offset", "must not be negative"))
    if request.HasField("end_offset") and request.end_offset <= request.start_offset:
        faults.append(Violation("end_offset", "must be above start_offset"))
    if len(request.letters) > _LETTERS_MAX:
        faults.append(Violation("letters", f"must have at most {_LETTERS_MAX:,}"))
    if request.letters and (
        request.partitions or request.start_offset or request.HasField("end_offset")
    ):
        text = "must not be set together with partitions, start_offset and end_offset"
        faults.append(Violation("letters", text))
    if len(request.conditions) > _CONDITIONS_MAX:
        faults.append(Violation("conditions", f"must have at most {_CONDITIONS_MAX}"))
    if any(len(each.splitlines()) != 1 for each in request.conditions):
        faults.append(Violation("conditions", "must each be one line"))
    return faults
