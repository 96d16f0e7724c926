"""Logs on Kafka.

    client.py     KafkaClient: producers, consumers, the admin client; translates Kafka's errors
    brokers.py    Brokers: requests that librdkafka lacks or makes too slowly, by aiokafka
    group_positions.py  a consumer group's committed offsets, by such requests
    topics.py     the topics that a cluster needs: creates and checks them
    records.py    Produced, GroupPosition, KafkaRecord
    reader.py     TopicReader: follows partitions up to the last stable offset
    writer.py     TransactionalWriter and PlainWriter
    control.py    ControlTopic: the newest value of each key of the control topic's partition 0
    log.py        KafkaLog and FollowedKafkaLog, the logs themselves

confluent-kafka blocks, so it runs on separate threads, and callers await the results. aiokafka runs
on a separate event loop.
"""
