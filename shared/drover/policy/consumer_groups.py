"""Which consumer groups can store offsets of connectors on Kafka."""

from collections.abc import Mapping

from drover.errors import Violation
from drover.model.config import CONSUMER_GROUP_SETTING, setting_text
from drover.model.sink_offsets import group_of


def group_id_fault(group_id: str) -> str | None:
    """Why the Kafka client cannot commit the offsets of a consumer group; None if it can.

    librdkafka sends no offsets in a transaction if the group's id has bytes other than printable
    ASCII ("group id is not safe"), and reads an id only up to its first NUL. It drops white space
    at the start, and ends the process if nothing is left.
    """
    if not (group_id.isascii() and group_id.isprintable()):
        return "the Kafka client commits offsets only of groups with printable ASCII characters"
    if group_id.startswith(" ") or not group_id:
        return "the Kafka client drops spaces at the start of a group"
    return None


def group_violations(setting: str, group_id: str | None, default: str) -> list[Violation]:
    """Violations by the consumer group with a connector's offsets on Kafka.

    Args:
        setting: The setting that names the group.
        group_id: Its value; None or empty for the default group.
        default: The default group, which has the connector's name.
    """
    fault = group_id_fault(group_id or default)
    if fault is None:
        return []
    if group_id:
        return [Violation(setting, f"names a group that cannot be used: {fault}")]
    return [
        Violation(
            "name",
            f"gives the connector the consumer group {default}, which cannot be used: {fault}. "
            f"Choose a name in ASCII, or set {setting} to a group in ASCII",
        )
    ]


def sink_group_violations(config: Mapping[str, str]) -> list[Violation]:
    """Violations by the consumer group of a sink whose offsets are stored on Kafka."""
    configured = setting_text(config, CONSUMER_GROUP_SETTING)
    return group_violations(CONSUMER_GROUP_SETTING, configured, group_of(config.get("name", "")))
