"""The shards of groups in this process.

``shards`` serves them, ``shard_manager`` loads and unloads them as ``core.ownership`` decides, and
``leases`` accesses the table of leases.
"""
