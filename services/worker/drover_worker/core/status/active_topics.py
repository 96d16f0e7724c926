"""Which topics connectors were seen to use (KIP-558), as the status store knows it.

A worker tells of a topic when a task of it has moved records of it; the leader has the topics of
connectors forgotten that are no more.
"""

from collections.abc import Iterable, Mapping, Sequence

from drover.errors import DroverError
from drover.model.ids import TaskId
from drover.model.status import TopicEvent, TopicKey, TopicStatus
from drover_worker.core.causes import Cause
from drover_worker.core.context import Context
from drover_worker.core.events import TopicsDue
from drover_worker.core.instructions import DeleteTopicStatuses, PutTopicStatuses
from drover_worker.core.rebalance.membership import Membership


class ActiveTopics:
    """The view of topics, and what this worker has to say of them.

    What could not be told, or not be forgotten, is tried again after a back-off.
    """

    def __init__(self, context: Context, membership: Membership) -> None:
        self._context = context
        self._membership = membership
        self._topics: dict[str, set[str]] = {}
        #: What is being told, by the cause of the call: whose task has seen it, and which topics.
        self._telling: dict[str, tuple[TaskId, Sequence[str]]] = {}
        self._untold: list[tuple[TaskId, Sequence[str]]] = []
        #: Connectors to be looked at by the leader, in order.
        self._suspects: dict[str, None] = {}
        #: Whose topics are being forgotten, by the cause of the call.
        self._forgetting: dict[str, str] = {}
        self._failed: dict[str, None] = {}
        self._attempt = 0

    def of(self, connector: str) -> list[str]:
        """The topics that a connector was seen to use, by name."""
        return sorted(self._topics.get(connector, ()))

    # News

    def load(self, topics: Mapping[TopicKey, TopicStatus]) -> None:
        """The whole of what the status store knows."""
        self._topics = {}
        for key in topics:
            self._topics.setdefault(key.connector, set()).add(key.topic)
        self.look_at_all()

    def changed(self, event: TopicEvent) -> None:
        """A topic was seen, or is forgotten."""
        name, topic = event.key.connector, event.key.topic
        if event.status is not None:
            self._topics.setdefault(name, set()).add(topic)
            self.look_at(name)
        elif topic in self._topics.get(name, ()):
            self._topics[name].discard(topic)
            if not self._topics[name]:
                del self._topics[name]

    def used(self, task: TaskId, topics: Iterable[str]) -> None:
        """A task of this worker has moved records of these topics."""
        name = task.connector
        if name not in self._context.view.connectors:
            return  # it is gone, and its topics with it
        calls = (*self._telling.values(), *self._untold)
        under_way = {topic for known, told in calls for topic in told if known.connector == name}
        fresh = sorted({*topics} - self._topics.get(name, set()) - under_way)
        if fresh:
            cause_id = self._context.next_cause(Cause.PUT_TOPICS)
            self._telling[cause_id] = task, fresh
            self._context.emit(PutTopicStatuses(cause_id, task, fresh))

    def look_at(self, name: str) -> None:
        """A connector may be gone while topics of it are known."""
        if name in self._topics and name not in self._context.view.connectors:
            self._suspects[name] = None

    def look_at_all(self) -> None:
        """So may any: this worker has come to lead, or has read everything anew."""
        for name in self._topics:
            self.look_at(name)

    def due(self) -> None:
        """The back-off is over."""
        self._suspects.update(self._failed)
        self._failed.clear()
        untold, self._untold = self._untold, []
        for task, topics in untold:
            self.used(task, topics)

    # Calls

    def pump(self) -> None:
        """Leader: have the topics of connectors forgotten that are no more."""
        if not self._membership.leads:
            return
        suspects, self._suspects = self._suspects, {}
        for name in suspects:
            is_gone = name in self._topics and name not in self._context.view.connectors
            if is_gone and name not in self._forgetting.values():
                cause_id = self._context.next_cause(Cause.DELETE_TOPICS)
                self._forgetting[cause_id] = name
                self._context.emit(DeleteTopicStatuses(cause_id, name))

    def done(self, cause_id: str) -> None:
        """It is durable; the view follows."""
        self._attempt = 0
        self._telling.pop(cause_id, None)
        self._forgetting.pop(cause_id, None)

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """A call failed: retry it after a back-off."""
        told = self._telling.pop(cause_id, None)
        name = self._forgetting.pop(cause_id, None)
        if told is not None:
            self._untold.append(told)
        elif name is not None:
            self._failed[name] = None
        else:
            return
        delay_ms = self._context.call_backoff_ms(self._attempt)
        self._attempt += 1
        self._context.set_timer("topics", delay_ms, TopicsDue())
