"""What a worker can be told, from DROVER_… variables."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drover.config.plugin_modules import module_names
from drover.config.providers import (
    BUILT_IN_NAMES,
    CLASS,
    ConfigProviderError,
    make_provider,
)
from drover.log.storage import KafkaTopics
from drover.rpc.settings import (
    AdvertisedAddress,
    JsonObjects,
    JsonTexts,
    ListenAddress,
    PositiveMs,
    RequiredAddresses,
    ServiceSettings,
    is_loopback,
    split_address,
)
from drover.security.signatures import ALGORITHMS
from drover_worker.core.context import HerderSettings
from drover_worker.engine.settings import EngineLimits, EngineSettings

_EVERY_INTERFACE = ("0.0.0.0", "::")

HmacAlgorithm = Literal["HmacSHA256", "HmacSHA384", "HmacSHA512"]


class WorkerSettings(ServiceSettings):
    """A worker's settings.

    Attributes:
        worker_listen: Where clients' calls are served.
        worker_advertised: Where clients reach it; also its worker id. By default the address that
            it listens on. ``{hostname}`` in it stands for the machine's own name.
        worker_internal_listen: Where the other workers' calls are served; without TLS by whoever
            calls: keep it off networks that are not trusted. By default a free port of the loopback
            interface.
        worker_internal_advertised: Where the other workers reach that; likewise.
        coordinator_address: The group coordinator; several that share the groups with commas
            between.
        config_store_address: The config store; on Kafka there may be several of the same log, with
            commas between: when one is away the next one is asked.
        status_store_address: The status store; likewise.
        session_timeout_ms: How long the worker may be silent before its work goes to others.
        heartbeat_interval_ms: Between two signs of life; below the session timeout.
        counts_interval_ms: Between two writes of what became of tasks' records.
        herder_stale_ms: How long the herder may handle nothing before health checks hear that the
            worker does not serve.
        connect_protocol: How work moves between workers: ``compatible`` stops only what has to
            move, ``eager`` stops everything at every change; ``sessioned`` is as ``compatible``,
            and workers sign what they ask of each other. The group speaks the last of these that
            all its workers know: while any of them speaks only eager, all do.
        inter_worker_key_generation_algorithm: What the key is made for that signs calls between
            workers.
        inter_worker_key_size_bits: How long that key is.
        inter_worker_key_ttl_ms: How old the key gets before the leader makes the next one.
        inter_worker_signature_algorithm: What this worker's calls of other workers are signed by.
        inter_worker_verification_algorithms: By what signatures of other workers may be made, with
            commas between; one of them is that of this worker's own.
        scheduled_rebalance_max_delay_ms: How long the work of a worker that is gone waits for its
            return before others get it, unless it was killed; not under ``eager``.
        rebalance_timeout_ms: How long a rebalance waits for this worker to stop its work.
        plugin_call_timeout_ms: How long a plugin may take for each of: being made and started,
            checking a config, making task configs. What takes longer is given up.
        plugin_poll_timeout_ms: How long one poll() of a source task may take.
        plugin_stop_timeout_ms: How long a stop() may take, and the batch that it waits for.
        drain_timeout_ms: How long a worker that is told to end may take to hand its work over; what
            is left then is stopped. 0: it does not hand over, it stops its work and leaves.
        tls_client_auth: Over TLS, ``required`` when clients must show a certificate, ``none`` when
            they need a token. Workers, coordinators and stores ask each other always.
        file_roots: Below which directories connectors may read and write files, with commas
            between. By default any while the worker listens on loopback only, else none.
        plugin_modules: The modules whose classes and functions configs may name although no entry
            point does, with commas between; what lies below them counts. None by default.
        http_allowed_hosts: Which hosts connectors may call over HTTP, with commas between. By
            default any but link-local addresses and those of clouds' metadata.
        exactly_once_source_support: On Kafka, ``enabled`` has sources write records and offsets in
            one transaction; ``disabled`` and ``preparing`` at least once. By default enabled, but
            disabled where DROVER_OFFSET_STORAGE_TOPIC names a topic: if Kafka Connect shares it,
            that reads it as if there were no transactions unless its own
            exactly.once.source.support is enabled.
        spark_master: As spark.master.
        spark_conf: More Spark settings, as a JSON object.
        converters: The converters of connectors that name none, with their settings, as a JSON
            object of what a connector's config would say: ``{"value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false"}``.
        config_providers: The config providers that placeholders may name, with their settings, as
            a JSON object: ``{"file": {"allowed.paths": "/run/secrets"}, "env":
            {"allowlist.pattern": "DB_.*"}}``. None by default.
    """

    worker_listen: ListenAddress = "127.0.0.1:7411"
    worker_advertised: AdvertisedAddress | None = None
    worker_internal_listen: ListenAddress = "127.0.0.1:0"
    worker_internal_advertised: AdvertisedAddress | None = None
    coordinator_address: RequiredAddresses = "127.0.0.1:7401"
    config_store_address: RequiredAddresses = "127.0.0.1:7402"
    status_store_address: RequiredAddresses = "127.0.0.1:7403"
    session_timeout_ms: PositiveMs = 10_000
    heartbeat_interval_ms: PositiveMs = 3_000
    counts_interval_ms: PositiveMs = 5_000
    herder_stale_ms: PositiveMs = 10_000
    connect_protocol: Literal["sessioned", "compatible", "eager"] = "sessioned"
    inter_worker_key_generation_algorithm: HmacAlgorithm = "HmacSHA256"
    inter_worker_key_size_bits: Annotated[int, Field(ge=128, le=8_000, multiple_of=8)] = 256
    inter_worker_key_ttl_ms: Annotated[int, Field(ge=1_000)] = 3_600_000
    inter_worker_signature_algorithm: HmacAlgorithm = "HmacSHA256"
    inter_worker_verification_algorithms: str = "HmacSHA256"
    scheduled_rebalance_max_delay_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 0
    rebalance_timeout_ms: PositiveMs = 60_000
    plugin_call_timeout_ms: PositiveMs = 30_000
    plugin_poll_timeout_ms: PositiveMs = 60_000
    plugin_stop_timeout_ms: PositiveMs = 5_000
    drain_timeout_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 15_000
    tls_client_auth: Literal["required", "none"] = "required"
    file_roots: str | None = None
    http_allowed_hosts: str | None = None
    plugin_modules: str = ""
    exactly_once_source_support: Literal["enabled", "preparing", "disabled"] | None = None
    spark_master: Annotated[str, Field(min_length=1)] = "local[*]"
    spark_conf: JsonTexts = Field(default_factory=dict)
    converters: JsonTexts = Field(default_factory=dict)
    config_providers: JsonObjects = Field(default_factory=dict)

    @model_validator(mode="after")
    def _beats_within_session(self) -> "WorkerSettings":
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                "DROVER_HEARTBEAT_INTERVAL_MS must be below DROVER_SESSION_TIMEOUT_MS "
                f"({self.heartbeat_interval_ms} is not below {self.session_timeout_ms})"
            )
        return self

    @model_validator(mode="after")
    def _signatures_let_in(self) -> "WorkerSettings":
        setting = "DROVER_INTER_WORKER_VERIFICATION_ALGORITHMS"
        accepted = self.verification_algorithms
        unknown = [name for name in accepted if name not in ALGORITHMS]
        if unknown:
            raise ValueError(
                f"{setting} must list {', '.join(ALGORITHMS)}, not {unknown[0][:30]!r}"
            )
        if self.inter_worker_signature_algorithm not in accepted:
            raise ValueError(
                f"{setting} must list {self.inter_worker_signature_algorithm}, which"
                " DROVER_INTER_WORKER_SIGNATURE_ALGORITHM names"
            )
        return self

    @property
    def verification_algorithms(self) -> tuple[str, ...]:
        """The algorithms of signatures that are let in."""
        return tuple(name.strip() for name in self.inter_worker_verification_algorithms.split(","))

    @model_validator(mode="after")
    def _only_converters(self) -> "WorkerSettings":
        for name in self.converters:
            if not name.startswith(("key.converter", "value.converter", "header.converter")):
                raise ValueError(f"DROVER_CONVERTERS: {name} is no setting of a converter")
        return self

    @model_validator(mode="after")
    def _providers_can_be_set_up(self) -> "WorkerSettings":
        for name, settings in self.config_providers.items():
            if settings.get(CLASS, name) in BUILT_IN_NAMES:
                try:
                    make_provider(name, settings)
                except ConfigProviderError as error:
                    raise ValueError(f"DROVER_CONFIG_PROVIDERS: {name}: {error}") from error
        return self

    @model_validator(mode="after")
    def _reachable(self) -> "WorkerSettings":
        host, _ = split_address(self.worker_listen)
        if self.worker_advertised is None and host in _EVERY_INTERFACE:
            raise ValueError(
                "DROVER_WORKER_ADVERTISED must be given when DROVER_WORKER_LISTEN is on every "
                f"interface ({self.worker_listen}): clients need an address"
            )
        return self

    @model_validator(mode="after")
    def _reachable_by_workers(self) -> "WorkerSettings":
        address = self.worker_advertised or self.worker_listen
        if "worker_internal_listen" not in self.model_fields_set and not is_loopback(address):
            raise ValueError(
                "DROVER_WORKER_INTERNAL_LISTEN must be given for a worker that is not on loopback "
                f"({address}): the other workers call it there; without TLS they prove nothing, so"
                " choose an address on a network that you trust"
            )
        host, _ = split_address(self.worker_internal_listen)
        if self.worker_internal_advertised is None and host in _EVERY_INTERFACE:
            raise ValueError(
                "DROVER_WORKER_INTERNAL_ADVERTISED must be given when"
                " DROVER_WORKER_INTERNAL_LISTEN is on every interface"
                f" ({self.worker_internal_listen}): the other workers need an address"
            )
        return self

    @model_validator(mode="after")
    def _roots_absolute(self) -> "WorkerSettings":
        for root in (self.file_roots or "").split(","):
            if root.strip() and not root.strip().startswith("/"):
                raise ValueError(
                    f"DROVER_FILE_ROOTS must list absolute paths, not {root.strip()!r}: connectors "
                    "run in any directory"
                )
        return self

    @model_validator(mode="after")
    def _modules_named(self) -> "WorkerSettings":
        try:
            module_names(self.plugin_modules)
        except ValueError as error:
            raise ValueError(f"DROVER_PLUGIN_MODULES must list modules: {error}") from error
        return self

    @model_validator(mode="after")
    def _hosts_named(self) -> "WorkerSettings":
        for host in (self.http_allowed_hosts or "").split(","):
            if "://" in host or " " in host.strip():
                raise ValueError(
                    "DROVER_HTTP_ALLOWED_HOSTS must list hosts such as api.example.com,"
                    f" *.example.com or 10.0.0.0/8, not {host.strip()!r}"
                )
        return self

    def advertised(self) -> Mapping[str, str]:
        """For clients, and for the other workers."""
        return dict(
            (f"DROVER_{name}_ADVERTISED", given)
            if given is not None
            else (f"DROVER_{name}_LISTEN", listened)
            for name, given, listened in (
                ("WORKER", self.worker_advertised, self.worker_listen),
                ("WORKER_INTERNAL", self.worker_internal_advertised, self.worker_internal_listen),
            )
        )

    def herder_settings(self, worker_id: str, internal_url: str = "") -> HerderSettings:
        """What the herder's core is told."""
        return HerderSettings(
            worker_id=worker_id,
            group_id=self.group_id,
            internal_url=internal_url,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            counts_interval_ms=self.counts_interval_ms,
            connect_protocol=self.connect_protocol,
            scheduled_delay_max_ms=self.scheduled_rebalance_max_delay_ms,
            key_algorithm=self.inter_worker_key_generation_algorithm,
            key_size_bytes=self.inter_worker_key_size_bits // 8,
            key_ttl_ms=self.inter_worker_key_ttl_ms,
            signature_algorithm=self.inter_worker_signature_algorithm,
            verification_algorithms=self.verification_algorithms,
        )

    def engine_settings(self) -> EngineSettings:
        """What each engine is told."""
        default_roots = "/" if is_loopback(self.worker_listen) else ""
        return EngineSettings(
            storage=self.storage(),
            spark_master=self.spark_master,
            spark_conf=self.spark_conf,
            not_exactly_once=self._not_exactly_once,
            file_roots=default_roots if self.file_roots is None else self.file_roots,
            http_allowed_hosts=self.http_allowed_hosts,
            plugin_modules=self.plugin_modules,
            converters=self.converters,
            config_providers=self.config_providers,
            log_level=self.log_level,
            log_format=self.log_format,
            limits=EngineLimits(
                start_ms=self.plugin_call_timeout_ms,
                validate_ms=self.plugin_call_timeout_ms,
                task_configs_ms=self.plugin_call_timeout_ms,
                poll_ms=self.plugin_poll_timeout_ms,
                stop_ms=self.plugin_stop_timeout_ms,
            ),
        )

    @property
    def _not_exactly_once(self) -> str:
        """Why sources write to Kafka at least once; empty where they do not."""
        setting = "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT"
        support = self.exactly_once_source_support
        if support is None and self.offset_storage_topic != KafkaTopics().offset:
            return (
                f"{setting} is disabled on this worker by default, as DROVER_OFFSET_STORAGE_TOPIC "
                "names a topic that Kafka Connect may share"
            )
        if support not in (None, "enabled"):
            return f"{setting} is {support} on this worker"
        if not self.spark_master.startswith("local"):
            return (
                "batches wait on the engine's machine, and DROVER_SPARK_MASTER "
                f"({self.spark_master}) has executors on others"
            )
        return ""
