"""The table of all metrics, which docs/metrics.md shows. No other metric can be exported."""

from drover.metrics.metric import Kind, Metric

COUNTER, GAUGE, SUMMARY, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.SUMMARY, Kind.HISTOGRAM
_EVERY = "every process"
_STORES = "coordinator, stores"
_COORDINATOR = "coordinator"
_WORKER = "worker"
_GATEWAY = "gateway"
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
    "1, with the service and its version.",
    "app-info: version",
)
SERVING = Metric(
    "drover_serving",
    GAUGE,
    (),
    _EVERY,
    "1 while the process serves calls, as in its health service.",
)
STORAGE_SERVING = Metric(
    "drover_storage_serving",
    GAUGE,
    (),
    _EVERY,
    "1 while its storage is available; on Kafka, while it can reach the brokers.",
)
CERTIFICATE_END = Metric(
    "drover_certificate_end_timestamp_seconds",
    GAUGE,
    (),
    _EVERY,
    "When its certificate expires, in seconds since the epoch; only with TLS.",
)
LOOP_LAG = Metric(
    "drover_event_loop_lag_seconds",
    GAUGE,
    (),
    _EVERY,
    "How long this scrape waited for the process's event loop.",
)
SERIES_LEFT_OUT = Metric(
    "drover_series_left_out",
    GAUGE,
    (),
    _EVERY,
    "Series omitted from this scrape, because a metric has more series than the limit.",
)
PROCESS = tuple(
    Metric(f"process_{name}", kind, (), _EVERY, meaning)
    for name, kind, meaning in (
        ("cpu_seconds_total", COUNTER, "CPU time, without the engine's."),
        ("resident_memory_bytes", GAUGE, "Resident memory, without the engine's."),
        ("virtual_memory_bytes", GAUGE, "Virtual memory."),
        ("start_time_seconds", GAUGE, "When the process started, in seconds since the epoch."),
        ("open_fds", GAUGE, "Open file descriptors."),
        ("max_fds", GAUGE, "The limit of open file descriptors."),
    )
)

# --- calls -----------------------------------------------------------------------------------

RPC_CALLS = Metric(
    "drover_rpc_calls_total",
    COUNTER,
    (*_METHOD, "code"),
    _EVERY,
    "Completed calls, by gRPC status code.",
)
RPC_SECONDS = Metric(
    "drover_rpc_seconds",
    HISTOGRAM,
    _METHOD,
    _EVERY,
    "Durations of unary calls; a join includes the wait for the group.",
)
RPC_IN_FLIGHT = Metric(
    "drover_rpc_in_flight", GAUGE, _METHOD, _EVERY, "Calls and streams in progress."
)

# --- logs ------------------------------------------------------------------------------------

LOG_APPENDS = Metric("drover_log_appends_total", COUNTER, _LOG, _STORES, "Successful appends.")
LOG_FAILURES = Metric("drover_log_append_failures_total", COUNTER, _LOG, _STORES, "Failed appends.")
LOG_RECORDS = Metric("drover_log_records_total", COUNTER, _LOG, _STORES, "Records appended.")
LOG_SECONDS = Metric(
    "drover_log_append_seconds",
    HISTOGRAM,
    _LOG,
    _STORES,
    "Durations of appends, including failed ones.",
)
LOG_END = Metric(
    "drover_log_end_offset",
    GAUGE,
    _LOG,
    _STORES,
    "The end offset that was read: the last offset + 1.",
)
LOG_QUEUE = Metric(
    "drover_log_queued_events", GAUGE, _LOG, _STORES, "Requests queued for the log's state machine."
)
LOG_WATCHERS = Metric("drover_log_watchers", GAUGE, _LOG, _STORES, "Open watch streams.")
STORAGE_FREE = Metric(
    "drover_storage_free_bytes", GAUGE, (), _STORES, "Free space on the volume of embedded storage."
)
STORAGE_SIZE = Metric(
    "drover_storage_size_bytes", GAUGE, (), _STORES, "Size of the volume of embedded storage."
)

# --- groups ----------------------------------------------------------------------------------

SHARDS = Metric("drover_shards", GAUGE, (), _COORDINATOR, "Shards of groups that it owns.")
GROUPS = Metric("drover_groups", GAUGE, ("state",), _COORDINATOR, "Groups by state.")
GROUP_MEMBERS = Metric(
    "drover_group_members",
    GAUGE,
    _GROUP,
    _COORDINATOR,
    "Members of the group, for the 100 largest groups.",
)
GROUP_STATE = Metric(
    "drover_group_state",
    GAUGE,
    (*_GROUP, "state"),
    _COORDINATOR,
    "1 for the group's current state.",
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
    "Completed rebalances and their total duration, from the first join or leave to the leader's "
    "assignment.",
)

# --- stores ----------------------------------------------------------------------------------

CONNECTORS = Metric(
    "drover_connectors",
    GAUGE,
    ("target_state",),
    "config store",
    "Connectors by target state.",
)
TASKS = Metric(
    "drover_tasks", GAUGE, (), "config store", "Tasks in the task configs of all connectors."
)
STATUSES = Metric(
    "drover_statuses",
    GAUGE,
    ("kind", "state"),
    "status store",
    "Connectors and tasks of the whole cluster, by state.",
)

# --- workers ---------------------------------------------------------------------------------

_REBALANCE = "connect-worker-rebalance-metrics: "
STAGE = Metric(
    "drover_worker_stage",
    GAUGE,
    ("stage",),
    _WORKER,
    "1 for the current stage of its group membership.",
)
LEADER = Metric(
    "drover_worker_leader",
    GAUGE,
    (),
    _WORKER,
    "1 on the leader.",
    _REBALANCE + "leader-name",
)
GENERATION = Metric(
    "drover_worker_generation",
    GAUGE,
    (),
    _WORKER,
    "Its group generation; -1 without membership.",
    _REBALANCE + "epoch",
)
REBALANCING = Metric(
    "drover_worker_rebalancing",
    GAUGE,
    (),
    _WORKER,
    "1 while it is joining a generation.",
    _REBALANCE + "rebalancing",
)
REBALANCES = Metric(
    "drover_worker_rebalance_seconds",
    SUMMARY,
    (),
    _WORKER,
    "Completed rebalances of this worker and their total duration.",
    _REBALANCE + "completed-rebalances-total, rebalance-avg-time-ms",
)
LAST_REBALANCE = Metric(
    "drover_worker_last_rebalance_timestamp_seconds",
    GAUGE,
    (),
    _WORKER,
    "When the last rebalance ended, in seconds since the epoch; 0 before the first.",
    _REBALANCE + "time-since-last-rebalance-ms",
)
ASSIGNED_CONNECTORS = Metric(
    "drover_worker_connectors",
    GAUGE,
    (),
    _WORKER,
    "Connectors assigned to it.",
    "connect-worker-metrics: connector-count; connect-coordinator-metrics: assigned-connectors",
)
ASSIGNED_TASKS = Metric(
    "drover_worker_tasks",
    GAUGE,
    (),
    _WORKER,
    "Tasks assigned to it.",
    "connect-worker-metrics: task-count; connect-coordinator-metrics: assigned-tasks",
)
CONFIG_OFFSET = Metric(
    "drover_worker_config_offset",
    GAUGE,
    (),
    _WORKER,
    "The config log offset up to which it has read.",
)

# --- engines ---------------------------------------------------------------------------------

ENGINE_UP = Metric(
    "drover_engine_up", GAUGE, (), _WORKER, "1 while its shared engine runs and Spark is up."
)
ENGINES = Metric(
    "drover_engines",
    GAUGE,
    (),
    _WORKER,
    "Engines that run and whose Spark is up. The figures of Spark are sums over them.",
)
ENGINE_STARTS = Metric(
    "drover_engine_starts_total", COUNTER, (), _WORKER, "Engine starts in which Spark came up."
)
ENGINE_EXITS = Metric(
    "drover_engine_exits_total", COUNTER, (), _WORKER, "Engine exits, for any reason."
)
CONNECTOR_QUARANTINED = Metric(
    "drover_connector_quarantined",
    GAUGE,
    _CONNECTOR,
    _WORKER,
    "1 for a connector that ended the engine repeatedly and is isolated on this worker.",
)
ABANDONED_THREADS = Metric(
    "drover_engine_abandoned_threads",
    GAUGE,
    (),
    _WORKER,
    "Threads with plugin calls that exceeded their time limit and have not returned.",
)
SPARK_JOBS = Metric("drover_spark_jobs_total", COUNTER, (), _WORKER, "Spark jobs submitted.")
SPARK_ACTIVE_JOBS = Metric("drover_spark_active_jobs", GAUGE, (), _WORKER, "Spark jobs running.")
HEAP_USED = Metric("drover_spark_heap_used_bytes", GAUGE, (), _WORKER, "Used heap of Spark's JVM.")
HEAP_MAX = Metric("drover_spark_heap_max_bytes", GAUGE, (), _WORKER, "Maximum heap of Spark's JVM.")
ENGINE_MEMORY = Metric(
    "drover_engine_resident_memory_bytes",
    GAUGE,
    ("process",),
    _WORKER,
    "Resident memory of its engines by kind of process: engine (connectors and the drivers of "
    "tasks), jvm, python_workers (Spark's Python workers and all others). Pages that processes "
    "share are counted in each of them.",
)

# --- connectors ------------------------------------------------------------------------------

_CM = "connector-metrics: "
CONNECTOR_INFO = Metric(
    "drover_connector_info",
    GAUGE,
    (*_CONNECTOR, "class"),
    _WORKER,
    "1 on the worker to which the connector is assigned.",
    _CM + "connector-class",
)
CONNECTOR_STATE = Metric(
    "drover_connector_state",
    GAUGE,
    (*_CONNECTOR, "state"),
    _WORKER,
    "1 for the connector's current state.",
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
    "Failures of the connector, at its start or later.",
    "connect-worker-metrics: connector-startup-failure-total",
)
CONNECTOR_TASKS = Metric(
    "drover_connector_tasks",
    GAUGE,
    (*_CONNECTOR, "state"),
    _WORKER,
    "The connector's tasks on this worker, by state.",
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
    "1 for the task's current state.",
    _TM + "status, running-ratio, pause-ratio",
)
TASK_READ = Metric(
    "drover_task_records_read_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records of completed batches: polled by a source, read from topics by a sink.",
    _SRC + "source-record-poll-total; " + _SNK + "sink-record-read-total",
)
TASK_WRITTEN = Metric(
    "drover_task_records_written_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records written: to topics by a source, to the external system by a sink.",
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
    "Records that failed and were written to the dead letter queue.",
    _ERR + "deadletterqueue-produce-requests",
)
TASK_SKIPPED = Metric(
    "drover_task_records_skipped_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Records that failed, were tolerated and dropped.",
    _ERR + "total-records-skipped",
)
TASK_BYTES = Metric(
    "drover_task_bytes_total",
    COUNTER,
    _TASK,
    _WORKER,
    "The approximate size in topics of the records of its batches.",
)
TASK_BATCHES = Metric(
    "drover_task_batch_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Committed batches and their total duration.",
    _TM + "batch-size-avg (records read ÷ batches)",
)
TASK_POLLS = Metric(
    "drover_task_poll_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Calls of a source's poll(), including empty ones, and their total duration.",
    _SRC + "poll-batch-avg-time-ms",
)
TASK_WRITES = Metric(
    "drover_task_write_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Spark passes over a batch and their total duration: into topics, or through a sink's write().",
    _SNK + "put-batch-avg-time-ms",
)
TASK_COMMITS = Metric(
    "drover_task_commit_seconds",
    SUMMARY,
    _TASK,
    _WORKER,
    "Offset commits by the coordinator and their total duration; a source in embedded storage "
    "commits with its write.",
    _TM + "offset-commit-avg-time-ms; " + _SNK + "offset-commit-completion-total",
)
TASK_LAST_BATCH = Metric(
    "drover_task_last_batch_timestamp_seconds",
    GAUGE,
    _TASK,
    _WORKER,
    "When this worker last received the report of a completed batch, in seconds since the epoch; 0 "
    "before the first.",
)
TASK_LAG = Metric(
    "drover_task_lag_records",
    GAUGE,
    _TASK,
    _WORKER,
    "Records of a sink's topics that it has not written yet; also while it is paused or one batch "
    "takes long.",
    _SNK + "sink-record-lag-max",
)
TASK_RETRIES = Metric(
    "drover_task_retries_total",
    COUNTER,
    _TASK,
    _WORKER,
    "Batches and calls retried after a transient error.",
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
    "drover_task_restarts_total", COUNTER, _TASK, _WORKER, "Successful starts after the first one."
)
TASK_FAILURES = Metric(
    "drover_task_failures_total",
    COUNTER,
    (*_TASK, "cause"),
    _WORKER,
    "Failures of the task, at its start or later.",
    "connect-worker-metrics: task-startup-failure-total",
)
TASK_LAST_FAILURE = Metric(
    "drover_task_last_failure_timestamp_seconds",
    GAUGE,
    _TASK,
    _WORKER,
    "When the task last failed, in seconds since the epoch; only for tasks that have failed.",
    _ERR + "last-error-timestamp",
)
TASK_FIGURE = Metric(
    "drover_task_figure",
    GAUGE,
    (*_TASK, "figure"),
    _WORKER,
    "Gauges that its connector reports, such as `slot_lag_bytes`; at most 16 per task.",
)

# --- gateway ---------------------------------------------------------------------------------

HTTP_REQUESTS = Metric(
    "drover_http_requests_total",
    COUNTER,
    ("method", "code"),
    _GATEWAY,
    "HTTP requests by method and status code.",
)
HTTP_SECONDS = Metric(
    "drover_http_request_seconds",
    HISTOGRAM,
    ("method",),
    _GATEWAY,
    "Time from a request's head to the end of its response.",
)
HTTP_IN_FLIGHT = Metric(
    "drover_http_requests_in_flight",
    GAUGE,
    (),
    _GATEWAY,
    "HTTP requests in progress.",
)
HTTP_CONNECTIONS = Metric(
    "drover_http_connections",
    GAUGE,
    (),
    _GATEWAY,
    "Open connections of HTTP clients.",
)
HTTP_REFUSED = Metric(
    "drover_http_refused_total",
    COUNTER,
    ("reason",),
    _GATEWAY,
    "Connections and requests that were refused before the API: `connections`, `head_size`,"
    " `head_time`, `body_time`, `write_time`, `requests`, `host` or `origin`.",
)
GATEWAY_FAILED_CALLS = Metric(
    "drover_gateway_failed_calls_total",
    COUNTER,
    (),
    _GATEWAY,
    "Calls of workers that failed.",
)
GATEWAY_VIEWS = Metric(
    "drover_gateway_views",
    GAUGE,
    (),
    _GATEWAY,
    "Callers whose reads are answered from memory.",
)
GATEWAY_VIEW_READS = Metric(
    "drover_gateway_view_reads_total",
    COUNTER,
    (),
    _GATEWAY,
    "Requests that were answered from memory.",
)

#: In the order in which the docs list them.
METRICS: tuple[Metric, ...] = tuple(
    metric
    for value in list(globals().values())
    for metric in (value if isinstance(value, tuple) else (value,))
    if isinstance(metric, Metric)
)
