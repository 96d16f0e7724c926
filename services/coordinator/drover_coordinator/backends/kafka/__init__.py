"""The coordinator's storage on Kafka.

wiring.py          starts a coordinator on it
control.py         opens the control topic once the brokers are reachable
control_records.py the records of the control topic: leases and claims
leases.py          the table of leases, in partition 0 of the control topic
claims_log.py      claims of tasks, in a partition of the control topic
offset_topic.py    source offsets, in Kafka Connect's topic
sink_groups.py     sink offsets, in consumer groups
offsets.py         claims of tasks and committed offsets, on top of the three above
"""
