"""The graph of connectors and topics; pure."""

from drover_gateway.console.graph import configured_topics


def test_a_sink_that_has_read_nothing_yet_is_joined_to_the_topics_of_its_config() -> None:
    assert configured_topics({"topics": "orders-raw, b,,"}) == ["orders-raw", "b"]
    assert configured_topics({"topics.regex": "a.*"}) == []
