"""Logs on Kafka.

    client.py     KafkaClient: producers, consumers, the admin client; Kafka's errors in our terms
    brokers.py    Brokers: requests that librdkafka has not, or not soon enough, by aiokafka
    group_positions.py  where a consumer group is, by such requests
    topics.py     what topics a cluster needs, making them, refusing wrong ones
    records.py    what is written and read: Produced, GroupPosition, KafkaRecord
    reader.py     TopicReader: partitions from a start to the last stable offset and on
    writer.py     TransactionalWriter and PlainWriter
    control.py    ControlTopic: the newest value of each key of the control topic's partition 0
    log.py        KafkaLog and FollowedKafkaLog, the logs themselves

confluent-kafka blocks; here it runs on threads of its own, and callers await. aiokafka has an event
loop of its own.
"""
