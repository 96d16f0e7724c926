"""The coordinator's storage: ``embedded`` (a directory) or ``kafka`` (topics).

Each backend provides the same three parts and a ``wiring`` that serves with them:

- the log of each shard of groups (``drover.log.log.Log``)
- the table of leases (``sharding.leases.LeaseStore``)
- claims of tasks and committed offsets (``offset_store.OffsetStore``)
"""
