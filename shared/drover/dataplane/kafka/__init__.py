"""The data plane on Kafka.

    plane.py      KafkaPlane: what the driver asks and plans
    planning.py   which offsets a batch takes; pure
    reading.py    ranges as Arrow batches, on executors
    producing.py  Arrow batches as records: at least once, on executors
    protocol.py   the order of steps that makes a task's writes exactly once; pure
    staging.py    Arrow batches as files that wait to be published
    transactional.py  publishes them, with their offsets, in the engine
    topics.py     partition counts; topics are made here if they are missing
    clients.py    clients that a process keeps

confluent-kafka and aiokafka talk to the brokers: Spark needs no jars.
"""
