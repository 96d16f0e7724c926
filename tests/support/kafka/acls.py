"""The rights of a broker's user, as ACLs."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka.broker import KafkaBroker
from tests.support.waiting import wait_until

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
#: The kind and the name of a resource, and an operation on it.
Right = tuple[ResourceType, str, str]
_ANY: Any = None
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY,
    _ANY,
    ResourcePatternType.ANY,
    _ANY,
    _ANY,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def grant(broker: KafkaBroker, rights: Iterable[Right], *, user: str = "drover") -> None:
    """Give a user of the broker some rights; returns when the broker knows them."""
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_acls(bindings).values():
        made.result(60)
    wait_until(lambda: {*admin.describe_acls(_EVERY_ACL).result(60)} >= {*bindings})
