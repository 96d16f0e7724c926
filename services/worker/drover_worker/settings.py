"""The worker's settings, from DROVER_… variables."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drover.clock import utc_text
from drover.config.plugin_modules import module_names
from drover.config.providers import (
    BUILT_IN_NAMES,
    CLASS,
    ConfigProviderError,
    connector_patterns,
    make_provider,
)
from drover.java_plugins.allowed import (
    ALLOWED_VARIABLE,
    EVERY_CLASS,
    NO_CLASS,
    PREFERRED_VARIABLE,
    class_patterns,
)
from drover.java_plugins.changes import changed_classes, installed_classes
from drover.java_plugins.places import plugin_home
from drover.java_plugins.plugin_path import split_plugin_path
from drover.log.storage import EmbeddedStorage, KafkaTopics
from drover.model.engines import OWN
from drover.model.plugin_limits import PLUGIN_CALL_TIMEOUT_MS, PLUGIN_POLL_TIMEOUT_MS
from drover.model.sizes import size_bytes
from drover.model.times import DAY_MS
from drover.rpc.audit import STDOUT
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
from drover_worker.core.engine_resources import HEAPS_PER_ENGINE, OWN_ENGINES_MAX, Machine
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.engine.settings import (
    DEFAULT_DRIVER_MEMORY,
    DRIVER_MEMORY,
    NO_CLASS_ARCHIVES,
    EngineLimits,
    EngineSettings,
    default_class_archives,
    is_local_master,
)
from drover_worker.shell.memory_kills import memory_limit_bytes
from drover_worker.spark_security import spark_faults

_EVERY_INTERFACE = ("0.0.0.0", "::")
#: Settings of DROVER_KAFKA_CONFIG that name files with the worker's identity.
_KEY_FILES = (
    "ssl.key.location",
    "ssl.certificate.location",
    "ssl.keystore.location",
    "sasl.kerberos.keytab",
)

HmacAlgorithm = Literal["HmacSHA256", "HmacSHA384", "HmacSHA512"]


class WorkerSettings(ServiceSettings):
    """A worker's settings.

    Attributes:
        worker_listen: Where clients' calls are served.
        worker_advertised: The address for clients; also the worker id. By default the address that
            it listens on. ``{hostname}`` in it stands for the machine's host name.
        worker_internal_listen: Where other workers' calls are served. Without TLS any process can
            call it: keep it off untrusted networks. By default a free port of the loopback
            interface.
        worker_internal_advertised: The address for other workers; likewise.
        coordinator_address: The group coordinators, comma-separated when several share the groups.
        config_store_address: The config store; on Kafka a comma-separated list of replicas of the
            same log, tried in order.
        status_store_address: The status store; likewise.
        session_timeout_ms: How long the worker may send no heartbeat before its work is reassigned.
        heartbeat_interval_ms: Time between two heartbeats; below the session timeout.
        counts_interval_ms: Time between two writes of the tasks' record counts.
        herder_stale_ms: How long the herder may handle no event before health checks report that
            the worker does not serve.
        connect_protocol: The rebalance protocol: ``compatible`` stops only work that moves,
            ``eager`` stops all work in every rebalance; ``sessioned`` is ``compatible`` with signed
            calls between workers. The group uses the best protocol that all its workers support:
            one worker with ``eager`` makes the whole group eager.
        inter_worker_key_generation_algorithm: The algorithm of the key that signs calls between
            workers.
        inter_worker_key_size_bits: The size of that key.
        inter_worker_key_ttl_ms: The age at which the leader replaces that key.
        inter_worker_signature_algorithm: The algorithm that signs this worker's calls.
        inter_worker_verification_algorithms: Accepted algorithms for other workers' signatures,
            comma-separated; includes the algorithm of this worker's signatures.
        scheduled_rebalance_max_delay_ms: How long the work of a lost worker waits for its return
            before it is reassigned, unless the worker was killed; not under ``eager``.
        rebalance_timeout_ms: How long a rebalance waits for this worker to stop its work.
        plugin_call_timeout_ms: The limit for each of: a plugin's constructor and start, the
            validation of a config, the generation of task configs. A longer call is abandoned.
        plugin_poll_timeout_ms: The limit for one poll() of a source task.
        plugin_stop_timeout_ms: The limit for stop(), and for the batch in flight before it.
        drain_timeout_ms: How long a stopping worker may take to hand over its work; it then stops
            the rest. 0: it stops all work without handing it over.
        tls_client_auth: Over TLS, ``required`` when clients must show a certificate, ``none`` when
            they need a token. Workers, coordinators and stores always need certificates.
        file_roots: Directories below which connectors may read and write files, comma-separated. By
            default all while the worker listens on loopback only and has no access file, else none.
        plugin_modules: Modules whose classes and functions configs may name without an entry point,
            comma-separated; submodules are included. None by default.
        plugin_home: The folder of installed Java plugins; by default ``drover/java-plugins`` in the
            user's folder for data.
        plugin_path: Further folders with Java plugins, comma-separated, in the form of Kafka
            Connect's ``plugin.path``; they are only read.
        java_preferred: Connectors that run as Java plugins although Drover has connectors with
            their names, in the same form: for a Kafka Connect cluster that is taken over with its
            offsets.
        java_plugins: Java classes that configs may name, comma-separated; ``*`` at the end of a
            name covers the rest of it. By default all installed ones, but none with an access file.
        allowed_hosts: Hosts that connectors may connect to, with any protocol, comma-separated. By
            default all except link-local addresses and cloud metadata services.
        http_allowed_hosts: The earlier name of ``allowed_hosts``.
        client_override_policy: Which settings of client libraries a connector config may set:
            ``none`` for addresses and logins only, ``allowlist`` for the listed ones, ``all`` for
            any that name no code, command, identity, server or forbidden file.
        exactly_once_source_support: On Kafka, ``enabled`` makes sources write records and offsets
            in one transaction; ``disabled`` and ``preparing`` give at least once. By default
            enabled, but disabled when DROVER_OFFSET_STORAGE_TOPIC names a topic: a Kafka Connect
            that shares it reads it without regard for transactions, unless its own
            exactly.once.source.support is enabled.
        spark_master: As spark.master.
        spark_conf: Further Spark settings, as a JSON object. With an access file, and with a
            remote master on an untrusted network, they must not turn off Spark's authentication or
            encryption, or turn on its UI.
        engine: Where connectors without the setting ``engine`` run: in one ``shared`` engine, or
            each in its ``own``.
        class_archives: The folder with archives of the classes that Spark's JVM loads, which halve
            the CPU time of an engine's start; ``off`` for none. A worker writes a missing archive
            once its engine runs, with time that no other process needs, and uses only archives
            that no other user can have written. By default ``drover/spark-classes`` in the user's
            cache folder.
        own_engines_max: How many connectors of this worker may have their own engine at the same
            time. More are rejected, or fail until there is room after a rebalance.
        converters: Default converters for connectors that set none, with their settings, as a JSON
            object in the form of a connector's config: ``{"value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false"}``.
        gateway_secrets: Who receives the values of secrets from GetConnectorSecrets: no caller
            (``masked``), or callers with the role admin for the connector (``admin``). Gateways
            have the same setting: both must allow it.
        config_providers: The config providers that placeholders may name, with their settings, as a
            JSON object: ``{"file": {"allowed.paths": "/run/secrets"}, "env": {"allowlist.pattern":
            "DB_.*"}}``. None by default.
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
    scheduled_rebalance_max_delay_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 0
    rebalance_timeout_ms: PositiveMs = 60_000
    plugin_call_timeout_ms: PositiveMs = PLUGIN_CALL_TIMEOUT_MS
    plugin_poll_timeout_ms: PositiveMs = PLUGIN_POLL_TIMEOUT_MS
    plugin_stop_timeout_ms: PositiveMs = 5_000
    drain_timeout_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 15_000
    tls_client_auth: Literal["required", "none"] = "required"
    file_roots: str | None = None
    allowed_hosts: str | None = None
    http_allowed_hosts: str | None = None
    client_override_policy: Literal["none", "allowlist", "all"] = "allowlist"
    plugin_modules: str = ""
    plugin_home: str | None = None
    plugin_path: str = ""
    java_plugins: str | None = None
    java_preferred: str = ""
    exactly_once_source_support: Literal["enabled", "preparing", "disabled"] | None = None
    spark_master: Annotated[str, Field(min_length=1)] = "local[*]"
    spark_conf: JsonTexts = Field(default_factory=dict)
    engine: Literal["shared", "own"] = "shared"
    class_archives: str | None = None
    own_engines_max: Annotated[int, Field(ge=0, le=1_000)] = OWN_ENGINES_MAX
    converters: JsonTexts = Field(default_factory=dict)
    gateway_secrets: Literal["masked", "admin"] = "masked"
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
                f"{setting} must include {self.inter_worker_signature_algorithm}, the value of"
                " DROVER_INTER_WORKER_SIGNATURE_ALGORITHM"
            )
        return self

    @property
    def verification_algorithms(self) -> tuple[str, ...]:
        """The accepted signature algorithms."""
        return tuple(name.strip() for name in self.inter_worker_verification_algorithms.split(","))

    @model_validator(mode="after")
    def _only_converters(self) -> "WorkerSettings":
        for name in self.converters:
            if not name.startswith(("key.converter", "value.converter", "header.converter")):
                raise ValueError(f"DROVER_CONVERTERS: {name} is not a converter setting")
        return self

    @model_validator(mode="after")
    def _providers_can_be_set_up(self) -> "WorkerSettings":
        for name, settings in self.config_providers.items():
            try:
                connector_patterns(settings)
                if settings.get(CLASS, name) in BUILT_IN_NAMES:
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
                f"interface ({self.worker_listen}): clients need an address to connect to"
            )
        return self

    @model_validator(mode="after")
    def _reachable_by_workers(self) -> "WorkerSettings":
        address = self.worker_advertised or self.worker_listen
        if "worker_internal_listen" not in self.model_fields_set and not is_loopback(address):
            raise ValueError(
                "DROVER_WORKER_INTERNAL_LISTEN must be given for a worker that is not on loopback "
                f"({address}): other workers call it there; without TLS they are not authenticated,"
                " so choose an address on a trusted network"
            )
        host, _ = split_address(self.worker_internal_listen)
        if self.worker_internal_advertised is None and host in _EVERY_INTERFACE:
            raise ValueError(
                "DROVER_WORKER_INTERNAL_ADVERTISED must be given when"
                " DROVER_WORKER_INTERNAL_LISTEN is on every interface"
                f" ({self.worker_internal_listen}): other workers need an address to connect to"
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
    def _archives_absolute(self) -> "WorkerSettings":
        given = self.class_archives
        if given not in (None, NO_CLASS_ARCHIVES) and not given.startswith("/"):
            raise ValueError(
                f"DROVER_CLASS_ARCHIVES must be {NO_CLASS_ARCHIVES} or an absolute path, not"
                f" {given!r}: engines run in any directory"
            )
        return self

    @model_validator(mode="after")
    def _spark_is_protected(self) -> "WorkerSettings":
        faults = spark_faults(
            self.spark_conf,
            self.spark_master,
            secure=bool(self.access_file),
            plaintext_allowed=self.allow_plaintext,
        )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @model_validator(mode="after")
    def _modules_named(self) -> "WorkerSettings":
        try:
            module_names(self.plugin_modules)
        except ValueError as error:
            raise ValueError(f"DROVER_PLUGIN_MODULES must list modules: {error}") from error
        return self

    @model_validator(mode="after")
    def _java_classes_named(self) -> "WorkerSettings":
        listed = {ALLOWED_VARIABLE: self.java_plugins, PREFERRED_VARIABLE: self.java_preferred}
        for variable, text in listed.items():
            try:
                class_patterns(text or "")
            except ValueError as error:
                raise ValueError(f"{variable} must list Java classes: {error}") from error
        return self

    @model_validator(mode="after")
    def _hosts_named(self) -> "WorkerSettings":
        new, old = self.allowed_hosts, self.http_allowed_hosts
        if new is not None and old is not None and new != old:
            raise ValueError(
                "DROVER_HTTP_ALLOWED_HOSTS is the earlier name of DROVER_ALLOWED_HOSTS, and they"
                " differ: set only DROVER_ALLOWED_HOSTS"
            )
        for host in (self.hosts or "").split(","):
            if "://" in host or " " in host.strip():
                raise ValueError(
                    "DROVER_ALLOWED_HOSTS must list hosts such as api.example.com,"
                    f" *.example.com or 10.0.0.0/8, not {host.strip()!r}"
                )
        return self

    @property
    def hosts(self) -> str | None:
        """The hosts that connectors may connect to, by either name of the setting."""
        return self.http_allowed_hosts if self.allowed_hosts is None else self.allowed_hosts

    def advertised(self) -> Mapping[str, str]:
        """The advertised addresses for clients and for other workers, by setting."""
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
        """The settings of the herder's core."""
        return HerderSettings(
            worker_id=worker_id,
            group_id=self.group_id,
            internal_url=internal_url,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            counts_interval_ms=self.counts_interval_ms,
            time_text=utc_text,
            connect_protocol=self.connect_protocol,
            scheduled_delay_max_ms=self.scheduled_rebalance_max_delay_ms,
            key_algorithm=self.inter_worker_key_generation_algorithm,
            key_size_bytes=self.inter_worker_key_size_bits // 8,
            key_ttl_ms=self.inter_worker_key_ttl_ms,
            signature_algorithm=self.inter_worker_signature_algorithm,
            verification_algorithms=self.verification_algorithms,
            own_engines=self.engine == OWN,
            own_engines_max=self.own_engines_max,
        )

    def java_changes(self, since_ms: int) -> Mapping[str, str]:
        """The changed Java plugin of each class that changed since a time."""
        folders = split_plugin_path(self.plugin_path)
        return changed_classes(since_ms, Path(self._plugin_home), folders)

    def java_classes(self) -> frozenset[tuple[str, str]]:
        """The Java classes that are installed, with the names of their plugins."""
        folders = split_plugin_path(self.plugin_path)
        return installed_classes(Path(self._plugin_home), folders)

    def engine_settings(self, slot: EngineSlot = SHARED) -> EngineSettings:
        """The settings of an engine."""
        is_open = is_loopback(self.worker_listen) and not self.access_file
        default_roots = "/" if is_open else ""
        return EngineSettings(
            storage=self.storage(),
            spark_master=self._spark_master_of(slot),
            spark_conf=self._spark_conf_of(slot),
            memory_bytes=slot.memory_bytes,
            cores=slot.cores,
            class_archives=self.class_archives or default_class_archives(),
            not_exactly_once=self._not_exactly_once,
            file_roots=default_roots if self.file_roots is None else self.file_roots,
            denied_files=self._own_files(),
            allowed_hosts=self.hosts,
            client_override_policy=self.client_override_policy,
            plugin_modules=self.plugin_modules,
            plugin_home=self._plugin_home,
            plugin_path=",".join(map(str, split_plugin_path(self.plugin_path))),
            java_plugins=self._java_plugins,
            java_preferred=self.java_preferred,
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
    def _plugin_home(self) -> str:
        return self.plugin_home or str(plugin_home())

    @property
    def _java_plugins(self) -> str:
        if self.java_plugins is not None:
            return self.java_plugins
        return NO_CLASS if self.access_file else EVERY_CLASS

    def _spark_master_of(self, slot: EngineSlot) -> str:
        limited = slot.cores is not None and is_local_master(self.spark_master)
        return f"local[{slot.cores}]" if limited else self.spark_master

    def _spark_conf_of(self, slot: EngineSlot) -> Mapping[str, str]:
        if slot.memory_bytes is None:
            return self.spark_conf
        heap_mib = slot.memory_bytes // HEAPS_PER_ENGINE >> 20
        return {**self.spark_conf, DRIVER_MEMORY: f"{heap_mib}m"}

    def machine(self) -> Machine:
        """What own engines of connectors may use on this machine."""
        heap = self.spark_conf.get(DRIVER_MEMORY, DEFAULT_DRIVER_MEMORY)
        default_bytes = size_bytes(DEFAULT_DRIVER_MEMORY) or 0
        return Machine(
            memory_bytes=memory_limit_bytes(),
            core_count=len(os.sched_getaffinity(0)),
            heap_bytes=size_bytes(heap) or default_bytes,
            own_by_default=self.engine == OWN,
            own_engines_max=self.own_engines_max,
            is_local=is_local_master(self.spark_master),
        )

    def _own_files(self) -> tuple[str, ...]:
        """Files and directories that no connector may access, whatever the roots."""
        files = [self.tls_cert, self.tls_key, self.tls_ca, self.access_file, self.audit_log]
        files += [] if "://" in self.jwks else [self.jwks]
        files += [self.kafka_config.get(each, "") for each in _KEY_FILES]
        # a connector that writes there would install code
        files += [self._plugin_home, *map(str, split_plugin_path(self.plugin_path))]
        storage = self.storage()
        if isinstance(storage, EmbeddedStorage):
            files.append(str(storage.directory))
        return tuple(str(Path(each).absolute()) for each in files if each and each != STDOUT)

    @property
    def _not_exactly_once(self) -> str:
        """Why sources write to Kafka at least once; empty for exactly once."""
        setting = "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT"
        support = self.exactly_once_source_support
        if support is None and self.offset_storage_topic != KafkaTopics().offset:
            return (
                f"{setting} is disabled on this worker by default, as DROVER_OFFSET_STORAGE_TOPIC "
                "names a topic that Kafka Connect may share"
            )
        if support not in (None, "enabled"):
            return f"{setting} is {support} on this worker"
        return ""
