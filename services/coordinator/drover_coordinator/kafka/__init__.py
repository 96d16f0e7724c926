"""The coordinator's storage on Kafka.

wiring.py          the parts put together
control.py         the control topic, opened as soon as the brokers are there
leases.py          the table of leases, in partition 0 of the control topic
claims_log.py      claims of tasks, in a partition of the control topic
offset_topic.py    source offsets, in Kafka Connect's topic
sink_groups.py     sink offsets, in consumer groups
offsets.py         the store of claims and offsets that these make up
"""
