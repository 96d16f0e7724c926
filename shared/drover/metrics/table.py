"""Every metric, by its name: what docs/metrics.md shows, and nothing else can be told."""

from drover.metrics.metric import Kind, Metric

COUNTER, GAUGE, SUMMARY, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.SUMMARY, Kind.HISTOGRAM
_EVERY = "every process"
_STORES = "coordinator, stores"
_COORDINATOR = "coordinator"
_WORKER = "worker"
_METHOD = ("service", "method")
_LOG = ("log",)
_GROUP = ("group",)
_CONNECTOR = ("connector",)
_TASK = ("connector", "task")

# --- every process ---------------------------------------------------------------------------

BUILD_INFO = Metric(
    "drover_build_info",
    GAUGE,
    ("service", "version"),
    _EVERY,
    "1, with what runs.",
    "app-info: version",
)
SERVING = Metric(
    "drover_serving", GAUGE, (), _EVERY, "1 while calls are answered, as the health service says."
)
STORAGE_SERVING = Metric(
    "drover_storage_serving",
    GAUGE,
    (),
    _EVERY,
    "1 while its storage can be used; on Kafka, while the brokers are there for it.",
)
CERTIFICATE_END = Metric(
    "drover_certificate_end_timestamp_seconds",
    GAUGE,
    (),
    _EVERY,
    "When the certificate that it shows ends, in seconds since 1970; only over TLS.",
)
LOOP_LAG = Metric(
    "drover_event_loop_lag_seconds",
    GAUGE,
    (),
    _EVERY,
    "How long this very scrape waited for the process's event loop.",
)
SERIES_LEFT_OUT = Metric(
    "drover_series_left_out",
    GAUGE,
    (),
    _EVERY,
    "Series that were not told, as a metric would have had too many.",
)
PROCESS = tuple(
    Metric(f"process_{name}", kind, (), _EVERY, meaning)
    for name, kind, meaning in (
        ("cpu_seconds_total", COUNTER, "Processor time; without the engine's."),
        ("resident_memory_bytes", GAUGE, "Memory; without the engine's."),
        ("virtual_memory_bytes", GAUGE, "Address space."),
        ("start_time_seconds", GAUGE, "When it was started, in seconds since 1970."),
        ("open_fds", GAUGE, "Open files and connections."),
        ("max_fds", GAUGE, "The most it may have open."),
    )
)

# --- calls -----------------------------------------------------------------------------------

RPC_CALLS = Metric(
    "drover_rpc_calls_total",
    COUNTER,
    (*_METHOD, "code"),
    _EVERY,
    "Calls that ended, by the gRPC code they ended with.",
)
RPC_SECONDS = Metric(
    "drover_rpc_seconds",
    HISTOGRAM,
    _METHOD,
    _EVERY,
    "How long unary calls took; a join waits for the group.",
)
RPC_IN_FLIGHT = Metric(
    "drover_rpc_in_flight", GAUGE, _METHOD, _EVERY, "Calls and streams under way."
)

# --- logs ------------------------------------------------------------------------------------

LOG_APPENDS = Metric(
    "drover_log_appends_total", COUNTER, _LOG, _STORES, "Appends that are durable."
)
LOG_FAILURES = Metric(
    "drover_log_append_failures_total", COUNTER, _LOG, _STORES, "Appends that failed."
)
LOG_RECORDS = Metric(
    "drover_log_records_total", COUNTER, _LOG, _STORES, "Records that it appended."
)
LOG_SECONDS = Metric(
    "drover_log_append_seconds", HISTOGRAM, _LOG, _STORES, "How long appends took, failed ones too."
)
LOG_END = Metric(
    "drover_log_end_offset", GAUGE, _LOG, _STORES, "How far it is read: the last offset + 1."
)
LOG_QUEUE = Metric(
    "drover_log_queued_events", GAUGE, _LOG, _STORES, "Requests that wait for the machine's turn."
)
LOG_WATCHERS = Metric("drover_log_watchers", GAUGE, _LOG, _STORES, "Watch streams of it.")
STORAGE_FREE = Metric(
    "drover_storage_free_bytes", GAUGE, (), _STORES, "Free space of an embedded storage's volume."
)
STORAGE_SIZE = Metric(
    "drover_storage_size_bytes", GAUGE, (), _STORES, "Size of an embedded storage's volume."
)

# --- groups ----------------------------------------------------------------------------------

SHARDS = Metric("drover_shards", GAUGE, (), _COORDINATOR, "Shards of groups that it serves.")
GROUPS = Metric("drover_groups", GAUGE, ("state",), _COORDINATOR, "Groups in each state.")
GROUP_MEMBERS = Metric(
    "drover_group_members",
    GAUGE,
    _GROUP,
    _COORDINATOR,
    "Members; of the 100 groups with most members.",
)
GROUP_STATE = Metric(
    "drover_group_state", GAUGE, (*_GROUP, "state"), _COORDINATOR, "1 for the group's state."
)
GROUP_GENERATION = Metric(
    "drover_group_generation",
    GAUGE,
    _GROUP,
    _COORDINATOR,
    "The group's generation.",
)
GROUP_REBALANCES = Metric(
    "drover_group_rebalance_seconds",
    SUMMARY,
    _GROUP,
    _COORDINATOR,
    "Rebalances that ended, and how long they took in all: from the first join or leave to the"
    " leader's assignment.",
)

# --- stores ----------------------------------------------------------------------------------

CONNECTORS = Metric(
    "drover_connectors",
    GAUGE,
    ("target_state",),
    "config store",
    "Connectors that should be in each state.",
)
TASKS = Metric("drover_tasks", GAUGE, (), "config store", "Tasks that should exist.")
STATUSES = Metric(
    "drover_statuses",
    GAUGE,
    ("kind", "state"),
    "status store",
    "Connectors and tasks in each state, of the whole cluster.",
)

# --- workers ---------------------------------------------------------------------------------

_REBALANCE = "connect-worker-rebalance-metrics: "
STAGE = Metric(
    "drover_worker_stage", GAUGE, ("stage",), _WORKER, "1 for the stage of its membership."
)
LEADER = Metric(
    "drover_worker_leader",
    GAUGE,
    (),
    _WORKER,
    "1 on the worker that leads.",
    _REBALANCE + "leader-name",
)
GENERATION = Metric(
    "drover_worker_generation",
    GAUGE,
    (),
    _WORKER,
    "Its generation; -1 without a membership.",
    _REBALANCE + "epoch",
)
REBALANCING = Metric(
    "drover_worker_rebalancing",
    GAUGE,
    (),
    _WORKER,
    "1 while it is on its way into a generation.",
    _REBALANCE + "rebalancing",
)
REBALANCES = Metric(
    "drover_worker_rebalance_seconds",
    SUMMARY,
    (),
    _WORKER,
    "Rebalances that it has been through, and how long they took in all.",
    _REBALANCE + "completed-rebalances-total, rebalance-avg-time-ms",
)
LAST_REBALANCE = Metric(
    "drover_worker_last_rebalance_timestamp_seconds",
    GAUGE,
    (),
    _WORKER,
    "When the last one ended, in seconds since 1970; 0 before the first.",
    _REBALANCE + "time-since-last-rebalance-ms",
)
ASSIGNED_CONNECTORS = Metric(
    "drover_worker_connectors",
    GAUGE,
    (),
    _WORKER,
    "Connectors that it has.",
    "connect-worker-metrics: connector-count; connect-coordinator-metrics: assigned-connectors",
)
ASSIGNED_TASKS = Metric(
    "drover_worker_tasks",
    GAUGE,
    (),
    _WORKER,
    "Tasks that it has.",
    "connect-worker-metrics: task-count; connect-coordinator-metrics: assigned-tasks",
)
CONFIG_OFFSET = Metric(
    "drover_worker_config_offset", GAUGE, (), _WORKER, "How far it has read the config log."
)

# --- engines ---------------------------------------------------------------------------------

ENGINE_UP = Metric("drover_engine_up", GAUGE, (), _WORKER, "1 while its engine runs with Spark.")
ENGINE_STARTS = Metric(
    "drover_engine_starts_total", COUNTER, (), _WORKER, "Engines that came up with Spark."
)
ENGINE_EXITS = Metric(
    "drover_engine_exits_total", COUNTER, (), _WORKER, "Engines that ended, for whatever reason."
)
ABANDONED_THREADS = Metric(
    "drover_engine_abandoned_threads",
    GAUGE,
    (),
    _WORKER,
    "Threads of plugins that did not return in time and hang.",
)
SPARK_JOBS = Metric("drover_spark_jobs_total", COUNTER, (), _WORKER, "Jobs that Spark was given.")
SPARK_ACTIVE_JOBS = Metric(
    "drover_spark_active_jobs", GAUGE, (), _WORKER, "Jobs that Spark works on."
)
HEAP_USED = Metric(
    "drover_spark_heap_used_bytes", GAUGE, (), _WORKER, "What Spark's JVM has of its heap in use."
)
HEAP_MAX = Metric(
    "drover_spark_heap_max_bytes", GAUGE, (), _WORKER, "The most that Spark's JVM may take for it."
)

# --- connectors ------------------------------------------------------------------------------

_CM = "connector-metrics: "
CONNECTOR_INFO = Metric(
    "drover_connector_info",
    GAUGE,
    (*_CONNECTOR, "class"),
    _WORKER,
    "1, on the worker that has the connector.",
    _CM + "connector-class",
)
CONNECTOR_STATE = Metric(
    "drover_connector_state",
    GAUGE,
    (*_CONNECTOR, "state"),
    _WORKER,
    "1 for the state that the connector is in.",
    _CM + "status",
)
CONNECTOR_STARTS = Metric(
    "drover_connector_starts_total",
    COUNTER,
    _CONNECTOR,
    _WORKER,
    "Starts that succeeded on this worker since it got the connector.",
    "connect-worker-metrics: connector-startup-success-total",
)
CONNECTOR_FAILURES = Metric(
    "drover_connector_failures_total",
    COUNTER,
    (*_CONNECTOR, "cause"),
    _WORKER,
    "How often it failed, at its start or later.",
    "connect-worker-metrics: connector-startup-failure-total",
)
CONNECTOR_TASKS = Metric(
    "drover_connector_tasks",
    GAUGE,
    (*_CONNECTOR, "state"),
    _WORKER,
    "Tasks of the connector that this worker has, by state.",
    "connect-worker-metrics: connector-{running,paused,failed,…}-task-count",
)

# --- tasks -----------------------------------------------------------------------------------

_TM, _SRC, _SNK = "connector-task-metrics: ", "source-task-metrics: ", "sink-task-metrics: "
_ERR = "task-error-metrics: "
TASK_STATE = Metric(
    "drover_task_state",
    GAUGE,
    (*_TASK, "state"),
    _WORKER,
    "1 for the state that the task is in.",
    _TM + "status, running-ratio, pause-ratio",
)
TASK_READ = Metric(
    "drover_task_records_read_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records of batches that are done: polled by a source, read from topics by a sink.",
    _SRC + "source-record-poll-total; " + _SNK + "sink-record-read-total",
)
TASK_WRITTEN = Metric(
    "drover_task_records_written_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records that are where they should go.",
    _SRC + "source-record-write-total; " + _SNK + "sink-record-send-total",
)
TASK_FILTERED = Metric(
    "drover_task_records_filtered_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records that a transform or schema.change dropped.",
)
TASK_DEAD_LETTERED = Metric(
    "drover_task_records_dead_lettered_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records that failed and are in the dead letter queue.",
    _ERR + "deadletterqueue-produce-requests",
)
TASK_SKIPPED = Metric(
    "drover_task_records_skipped_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records that failed, were tolerated and are gone.",
    _ERR + "total-records-skipped",
)
TASK_BYTES = Metric(
    "drover_task_bytes_total",
    COUNTER,
    _TASK,
    _WORKER,
    "About how many bytes the records of its batches have in topics.",
)
TASK_BATCHES = Metric(
    "drover_task_batch_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Batches that are done with their commit, and how long they took in all.",
    _TM + "batch-size-avg (records read ÷ batches)",
)
TASK_POLLS = Metric(
    "drover_task_poll_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Calls of a source's poll(), empty ones too.",
    _SRC + "poll-batch-avg-time-ms",
)
TASK_WRITES = Metric(
    "drover_task_write_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Passes of Spark over a batch: into topics, or through a sink's write().",
    _SNK + "put-batch-avg-time-ms",
)
TASK_COMMITS = Metric(
    "drover_task_commit_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Commits of offsets by the coordinator; a source of an embedded cluster commits as it writes.",
    _TM + "offset-commit-avg-time-ms; " + _SNK + "offset-commit-completion-total",
)
TASK_LAST_BATCH = Metric(
    "drover_task_last_batch_timestamp_seconds",
    GAUGE,
    _TASK,
    _WORKER,
    "When this worker last heard that a batch was done, in seconds since 1970; 0 before the first.",
)
TASK_LAG = Metric(
    "drover_task_lag_records",
    GAUGE,
    _TASK,
    _WORKER,
    "Records of a sink's topics that it has not written yet.",
    _SNK + "sink-record-lag-max",
)
TASK_RETRIES = Metric(
    "drover_task_retries_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Batches and calls that were made again after an error that may pass.",
    _ERR + "total-retries",
)
TASK_STARTS = Metric(
    "drover_task_starts_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Starts that succeeded on this worker since it got the task.",
    "connect-worker-metrics: task-startup-success-total",
)
TASK_RESTARTS = Metric(
    "drover_task_restarts_total", COUNTER, _TASK, _WORKER, "Starts after the first of those."
)
TASK_FAILURES = Metric(
    "drover_task_failures_total",
    COUNTER,
    (*_TASK, "cause"),
    _WORKER,
    "How often the task failed, at its start or later.",
    "connect-worker-metrics: task-startup-failure-total",
)
TASK_LAST_FAILURE = Metric(
    "drover_task_last_failure_timestamp_seconds",
    GAUGE,
    _TASK,
    _WORKER,
    "When it failed last, in seconds since 1970; only of tasks that have.",
    _ERR + "last-error-timestamp",
)
TASK_FIGURE = Metric(
    "drover_task_figure",
    GAUGE,
    (*_TASK, "figure"),
    _WORKER,
    "What its connector tells of itself, such as `slot_lag_bytes`: at most 16 figures.",
)

#: In the order of the docs.
METRICS: tuple[Metric, ...] = tuple(
    metric
    for value in list(globals().values())
    for metric in (value if isinstance(value, tuple) else (value,))
    if isinstance(metric, Metric)
)
#: What connectors' figures are called that have a metric of their own.
LAG_FIGURE = "lag_count"
