"""The coordinator's storage in a directory.

wiring.py          starts a coordinator on it
shard_files.py     creates the log file of each shard
lease_file.py      the table of leases, in coordinators.db
offsets.py         claims of tasks and committed offsets, in data.db
retention.py       removes old records of topics from data.db
"""
