"""How often each record arrives from a source to a sink: by what both guarantee. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb

EXACTLY_ONCE = "exactly once"


@dataclass(frozen=True, slots=True)
class Pair:
    """What a plugin guarantees together with another one; None where nothing is known."""

    other: str
    embedded: str | None
    kafka: str | None


def guarantees(plugin: pb.Plugin) -> tuple[str | None, str | None]:
    """How often records arrive in embedded storage, and on Kafka; None where nothing is said."""
    return _words(plugin.guarantee_embedded), _words(plugin.guarantee_kafka)


def pairs_of(plugin: pb.Plugin, others: Iterable[pb.Plugin]) -> list[Pair]:
    """With each plugin of the other kind, in their order."""
    own = guarantees(plugin)
    return [
        Pair(_name(other), *map(_together, own, guarantees(other)))
        for other in others
        if other.type != plugin.type
    ]


def told_pairs(plugin: pb.Plugin, pairs: Sequence[Pair]) -> Iterator[str]:
    """A line for each grade of each storage, where the plugin's own is known."""
    kind = "sinks" if plugin.type == pb.CONNECTOR_TYPE_SOURCE else "sources"
    if not plugin.guarantee_embedded:
        return
    found: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        for where, grade in (("in embedded storage", pair.embedded), ("on Kafka", pair.kafka)):
            found.setdefault((where, grade or "not known"), []).append(pair.other)
    for (where, grade), names in sorted(found.items(), key=lambda each: each[0][0]):
        yield f"{where} {grade} with the {kind} {', '.join(names)}"


def _together(one: str | None, other: str | None) -> str | None:
    """What holds for both: the lower of two, where one of them is exactly once."""
    if one is None or other is None or one == other:
        return one and other
    if EXACTLY_ONCE in (one, other):
        return other if one == EXACTLY_ONCE else one
    return None  # one may lose and the other one double


def _name(plugin: pb.Plugin) -> str:
    return plugin.aliases[0] if plugin.aliases else plugin.class_name


def _words(guarantee: pb.Guarantee.ValueType) -> str | None:
    if guarantee == pb.GUARANTEE_UNSPECIFIED:
        return None
    return pb.Guarantee.Name(guarantee).removeprefix("GUARANTEE_").replace("_", " ").lower()
