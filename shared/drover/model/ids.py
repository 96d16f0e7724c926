"""Ids of tasks, and the order of ownership."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One task of a connector; ``task`` is its index, from 0."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


def producer_id(group_id: str, task: TaskId) -> str:
    """The transactional id of a task's own producer, in Kafka Connect's form."""
    return f"{group_id}-{task.connector}-{task.task}"


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """The order of ownership: a later generation wins, then a higher sequence."""

    generation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.sequence}"
