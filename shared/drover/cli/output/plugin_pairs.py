"""The delivery guarantee of a source and a sink used together. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb

EXACTLY_ONCE = "exactly once"


@dataclass(frozen=True, slots=True)
class Pair:
    """The delivery guarantee of a plugin together with another one; None where it is unknown.

    Attributes:
        other: The other plugin's name.
        embedded: With embedded storage.
        kafka: With Kafka as storage.
    """

    other: str
    embedded: str | None
    kafka: str | None


def guarantees(plugin: pb.Plugin) -> tuple[str | None, str | None]:
    """A plugin's guarantees on embedded storage and on Kafka; None where it declares none."""
    return _words(plugin.guarantee_embedded), _words(plugin.guarantee_kafka)


def pairs_of(plugin: pb.Plugin, others: Iterable[pb.Plugin]) -> list[Pair]:
    """Pairs of a plugin with each plugin of the other type, in the order of ``others``."""
    own = guarantees(plugin)
    return [
        Pair(_name(other), *map(_together, own, guarantees(other)))
        for other in others
        if other.type != plugin.type
    ]


def pair_lines(plugin: pb.Plugin, pairs: Sequence[Pair]) -> Iterator[str]:
    """A line for each storage and guarantee; none if the plugin declares no guarantee."""
    kind = "sinks" if plugin.type == pb.CONNECTOR_TYPE_SOURCE else "sources"
    if not plugin.guarantee_embedded:
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        for where, grade in (("in embedded storage", pair.embedded), ("on Kafka", pair.kafka)):
            groups.setdefault((where, grade or "not known"), []).append(pair.other)
    for (where, grade), names in sorted(groups.items(), key=lambda each: each[0][0]):
        yield f"{where} {grade} with the {kind} {', '.join(names)}"


def _together(one: str | None, other: str | None) -> str | None:
    """The combined guarantee: the weaker one if the other is exactly once; else None."""
    if one is None or other is None or one == other:
        return one and other
    if EXACTLY_ONCE in (one, other):
        return other if one == EXACTLY_ONCE else one
    return None  # one side may lose records and the other may duplicate them


def _name(plugin: pb.Plugin) -> str:
    return plugin.aliases[0] if plugin.aliases else plugin.class_name


def _words(guarantee: pb.Guarantee.ValueType) -> str | None:
    if guarantee == pb.GUARANTEE_UNSPECIFIED:
        return None
    return pb.Guarantee.Name(guarantee).removeprefix("GUARANTEE_").replace("_", " ").lower()
