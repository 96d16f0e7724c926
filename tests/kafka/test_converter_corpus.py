"""The stored outputs of Kafka Connect's converters equal its current outputs."""

from tests.support.converter_corpus.generate import GOLDEN, golden_text, results
from tests.support.kafka.jars import KafkaJars


def test_the_real_converters_still_answer_so(kafka_jars: KafkaJars) -> None:
    assert golden_text(results(kafka_jars)) == GOLDEN.read_text()
