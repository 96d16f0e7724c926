"""The decisions of tasks: pure machines, without threads, clock, Spark, Kafka or files.

``SinkCore`` and ``SourceCore`` are volatile machines: ``step(event, now_ms)`` returns instructions,
the runners in ``engine/tasks`` execute them and return the results as events. docs/task-rules.md
lists the rules and their tests.
"""
