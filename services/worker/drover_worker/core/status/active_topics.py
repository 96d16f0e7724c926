"""The active topics of connectors (KIP-558) in the status store.

A worker puts a topic's status when one of its tasks has processed records of the topic; the leader
deletes the topics of connectors that no longer exist.
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
    """The view of active topics, and this worker's puts and deletes.

    Failed calls are retried after a back-off.
    """

    def __init__(self, context: Context, membership: Membership) -> None:
        self._context = context
        self._membership = membership
        self._topics: dict[str, set[str]] = {}
        #: Puts in flight, by cause id: the task that used the topics, and the topics.
        self._putting: dict[str, tuple[TaskId, Sequence[str]]] = {}
        self._failed_puts: list[tuple[TaskId, Sequence[str]]] = []
        #: Connectors that the leader has to check, in order.
        self._suspects: dict[str, None] = {}
        #: Connectors whose topics are being deleted, by cause id.
        self._deleting: dict[str, str] = {}
        self._failed_deletes: dict[str, None] = {}
        self._attempt = 0

    def of(self, connector: str) -> list[str]:
        """The topics that a connector uses, sorted by name."""
        return sorted(self._topics.get(connector, ()))

    # Events

    def load(self, topics: Mapping[TopicKey, TopicStatus]) -> None:
        """All topics were read."""
        self._topics = {}
        for key in topics:
            self._topics.setdefault(key.connector, set()).add(key.topic)
        self.check_all()

    def changed(self, event: TopicEvent) -> None:
        """A topic was put or deleted."""
        name, topic = event.key.connector, event.key.topic
        if event.status is not None:
            self._topics.setdefault(name, set()).add(topic)
            self.check(name)
        elif topic in self._topics.get(name, ()):
            self._topics[name].discard(topic)
            if not self._topics[name]:
                del self._topics[name]

    def used(self, task: TaskId, topics: Iterable[str]) -> None:
        """A task of this worker has processed records of these topics."""
        name = task.connector
        if name not in self._context.view.connectors:
            return  # the connector was removed, and its topics are deleted
        puts = (*self._putting.values(), *self._failed_puts)
        in_flight = {
            topic
            for put_task, put_topics in puts
            for topic in put_topics
            if put_task.connector == name
        }
        new_topics = sorted({*topics} - self._topics.get(name, set()) - in_flight)
        if new_topics:
            cause_id = self._context.next_cause(Cause.PUT_TOPICS)
            self._putting[cause_id] = task, new_topics
            self._context.emit(PutTopicStatuses(cause_id, task, new_topics))

    def check(self, name: str) -> None:
        """Schedule the deletion of a connector's topics if it no longer exists."""
        if name in self._topics and name not in self._context.view.connectors:
            self._suspects[name] = None

    def check_all(self) -> None:
        """Check all connectors: this worker became leader, or a snapshot was read."""
        for name in self._topics:
            self.check(name)

    def due(self) -> None:
        """The back-off is over."""
        self._suspects.update(self._failed_deletes)
        self._failed_deletes.clear()
        failed_puts, self._failed_puts = self._failed_puts, []
        for task, topics in failed_puts:
            self.used(task, topics)

    # Calls

    def pump(self) -> None:
        """Leader: delete the topics of connectors that no longer exist."""
        if not self._membership.leads:
            return
        suspects, self._suspects = self._suspects, {}
        for name in suspects:
            removed = name in self._topics and name not in self._context.view.connectors
            if removed and name not in self._deleting.values():
                cause_id = self._context.next_cause(Cause.DELETE_TOPICS)
                self._deleting[cause_id] = name
                self._context.emit(DeleteTopicStatuses(cause_id, name))

    def done(self, cause_id: str) -> None:
        """A put or delete is durable; the watch updates the view."""
        self._attempt = 0
        self._putting.pop(cause_id, None)
        self._deleting.pop(cause_id, None)

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """Retry a failed call after a back-off."""
        put = self._putting.pop(cause_id, None)
        name = self._deleting.pop(cause_id, None)
        if put is not None:
            self._failed_puts.append(put)
        elif name is not None:
            self._failed_deletes[name] = None
        else:
            return
        delay_ms = self._context.call_backoff_ms(self._attempt)
        self._attempt += 1
        self._context.set_timer("topics", delay_ms, TopicsDue())
