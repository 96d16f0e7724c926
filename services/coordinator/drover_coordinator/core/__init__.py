"""The pure core of the coordinator service.

groups/      membership, generations and offsets of groups: Kafka's classic group protocol
ownership/   which coordinator serves which shard of groups
claims/      which worker may commit a task's offsets
"""
