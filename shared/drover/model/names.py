"""Rules for the names of connectors and topics.

A connector's name becomes a part of log keys, file names and group ids. Every service accepts each
name that ``connector_name_violations`` accepts, and the names of Kafka Connect's connectors.
"""

import re
import unicodedata

from drover.errors import Violation

CONNECTOR_NAME_MAX_CHARS = 255
TOPIC_NAME_MAX_CHARS = 249
#: Kafka's rule for topic names, except that it also allows "." and "..".
TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX_CHARS}}}")
#: The topics of Kafka's brokers. Other names that start with "__" belong to clients, such as the
#: heartbeats of Debezium's connectors.
BROKER_TOPICS = frozenset(
    ("__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state")
)

#: Control characters, format characters, surrogates, line and paragraph separators.
_CONTROL_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


#: Control characters and surrogates.
_UNREADABLE_CATEGORIES = frozenset({"Cc", "Cs"})


def existing_name_violations(name: str, field: str = "name") -> list[Violation]:
    """All violations by the name of a connector that may exist: it is not empty, has at most 255
    characters and no control characters. Kafka Connect allows more names than
    ``connector_name_violations``, and Drover runs connectors that it created.
    """
    if not 1 <= len(name) <= CONNECTOR_NAME_MAX_CHARS:
        fault = f"must have 1 to {CONNECTOR_NAME_MAX_CHARS} characters, not {len(name)}"
        return [Violation(field, fault)]
    if any(unicodedata.category(char) in _UNREADABLE_CATEGORIES for char in name):
        return [Violation(field, "must not contain control characters")]
    return []


def connector_name_violations(name: str, field: str = "name") -> list[Violation]:
    """All violations of the rules for a connector's name; empty for a valid name.

    A name is not empty, has at most 255 characters, no control characters, and neither starts nor
    ends with white space. All other characters are allowed, as in Kafka Connect.
    """
    if not name.strip():
        return [Violation(field, "must not be empty")]
    faults = []
    if len(name) > CONNECTOR_NAME_MAX_CHARS:
        faults.append(
            f"must have at most {CONNECTOR_NAME_MAX_CHARS} characters, this one has {len(name)}"
        )
    start = name[:CONNECTOR_NAME_MAX_CHARS]  # a request may bring megabytes
    if any(unicodedata.category(char) in _CONTROL_CATEGORIES for char in start):
        faults.append("must not contain control characters")
    if name != name.strip():
        faults.append("must not start or end with white space")
    return [Violation(field, fault) for fault in faults]
