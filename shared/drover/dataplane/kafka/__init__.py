"""The data plane on Kafka.

    plane.py      KafkaPlane: the driver's queries and plans
    planning.py   chooses the offsets of a batch; pure
    reading.py    ranges as Arrow batches, on executors
    producing.py  Arrow batches as records: at least once, on executors
    protocol.py   the order of steps for exactly once; pure
    staging.py    Arrow batches as files to publish
    transactional.py  publishes them, with their offsets, in the engine
    topics.py     partition counts; creates missing topics
    clients.py    clients that a process keeps

confluent-kafka and aiokafka connect to the brokers: Spark needs no jars.
"""
