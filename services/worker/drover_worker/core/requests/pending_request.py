"""One request of a caller, and how far it has come."""

from dataclasses import dataclass
from enum import StrEnum

from drover.errors import DroverError
from drover.model.status import StatusKey
from drover_worker.core.requests import messages as requests


class Step(StrEnum):
    """How far a request has come; the value is what the caller is told at the deadline."""

    #: For a settled group, the leader, the right to write.
    WAITING = "has not begun"
    #: The config store is asked for the versions of a connector.
    READING_HISTORY = "waits for the connector's history"
    #: The engine looks at the config.
    VALIDATING = "waits for the engine to validate the config"
    #: A write to the config log is under way.
    WRITING = "waits for the config store"
    #: What failed is tried again later.
    BACKING_OFF = "waits to be tried again"
    #: It is durable; this worker's view is not there yet.
    READING_BACK = "is durable and waits to be read back"
    #: The connector or task is being restarted.
    RESTARTING = "waits for the restart"


@dataclass(slots=True)
class Pending:
    """One request that has no answer yet."""

    call_id: str
    request: requests.Request
    hop_count: int
    #: Who asks; empty if unknown.
    author: str = ""
    step: Step = Step.WAITING
    cause_id: str = ""
    attempt: int = 0
    last_error: str = ""
    validated: bool = False
    #: What the caller is told if the config store finds another revision than expected.
    refusal: DroverError | None = None
    #: Stop only: the task configs are gone, the target state is next.
    emptied: bool = False
    epoch: int | None = None
    #: What to answer once the view has reached ``end_offset``.
    response: requests.Response | None = None
    end_offset: int = 0
    restarted: StatusKey | None = None
    version: int = 0
