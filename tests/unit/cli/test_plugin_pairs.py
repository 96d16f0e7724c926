"""What two plugins guarantee together."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.plugin_pairs import Pair, pair_lines, pairs_of

ONCE, AGAIN, LOST = (
    pb.GUARANTEE_EXACTLY_ONCE,
    pb.GUARANTEE_AT_LEAST_ONCE,
    pb.GUARANTEE_AT_MOST_ONCE,
)
SOURCE, SINK = pb.CONNECTOR_TYPE_SOURCE, pb.CONNECTOR_TYPE_SINK


def plugin(
    name: str,
    kind: pb.ConnectorType.ValueType,
    embedded: pb.Guarantee.ValueType = pb.GUARANTEE_UNSPECIFIED,
    kafka: pb.Guarantee.ValueType = pb.GUARANTEE_UNSPECIFIED,
) -> pb.Plugin:
    return pb.Plugin(
        class_name=f"a.{name}",
        aliases=[name],
        type=kind,
        guarantee_embedded=embedded,
        guarantee_kafka=kafka,
    )


SINKS = [
    plugin("Keen", SINK, ONCE, ONCE),
    plugin("Again", SINK, AGAIN, AGAIN),
    plugin("Mute", SINK),
    plugin("Lossy", SINK, LOST, ONCE),
]


def test_the_lower_guarantee_holds_for_a_pair() -> None:
    source = plugin("From", SOURCE, ONCE, AGAIN)
    assert pairs_of(source, [source, *SINKS]) == [
        Pair("Keen", "exactly once", "at least once"),
        Pair("Again", "at least once", "at least once"),
        Pair("Mute", None, None),
        Pair("Lossy", "at most once", "at least once"),
    ]


def test_nothing_is_known_of_one_that_may_lose_with_one_that_may_double() -> None:
    source = plugin("From", SOURCE, AGAIN, AGAIN)
    assert pairs_of(source, SINKS[3:]) == [Pair("Lossy", None, "at least once")]


def test_pairs_are_told_by_storage_and_grade() -> None:
    source = plugin("From", SOURCE, ONCE, ONCE)
    assert list(pair_lines(source, pairs_of(source, SINKS))) == [
        "in embedded storage exactly once with the sinks Keen",
        "in embedded storage at least once with the sinks Again",
        "in embedded storage not known with the sinks Mute",
        "in embedded storage at most once with the sinks Lossy",
        "on Kafka exactly once with the sinks Keen, Lossy",
        "on Kafka at least once with the sinks Again",
        "on Kafka not known with the sinks Mute",
    ]
    silent = plugin("Silent", SOURCE)
    assert list(pair_lines(silent, pairs_of(silent, SINKS))) == []
    sink = SINKS[0]
    assert next(pair_lines(sink, pairs_of(sink, [source]))) == (
        "in embedded storage exactly once with the sources From"
    )
