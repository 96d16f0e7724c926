"""Ownership of shards by leases: ``machine`` decides, ``lease_table`` applies its writes."""
