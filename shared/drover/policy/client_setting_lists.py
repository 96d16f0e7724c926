"""The settings of client libraries that connectors may set, each group with its reason.

Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum


class Library(StrEnum):
    """A client library with settings from connector configs. httpx is not among them: no config
    setting is passed to it by name.
    """

    LIBRDKAFKA = "librdkafka"
    PYICEBERG = "PyIceberg"
    #: Answers of an Iceberg catalogue: its configuration, a table's configuration and credentials.
    ICEBERG_SERVER = "PyIceberg, from the catalogue"
    OBSTORE = "obstore"
    LIBPQ = "libpq"
    PYMYSQL = "PyMySQL"
    REGISTRY = "the schema registry's client"


class Kind(Enum):
    """How values are checked: not at all, by the policy of files, by the policy of hosts."""

    VALUE = "value"
    FILE = "file"
    SERVER = "server"


class Danger(StrEnum):
    """Why a setting is rejected under every policy."""

    CODE = "names code, a plug-in or a callback, which the worker would run"
    COMMAND = "names a command, which the worker or the server would run"
    IDENTITY = "selects an identity that the connector does not own"
    SERVER = "names another server to connect to"
    FILE = "makes the library read or write files of the worker"
    RESERVED = "is set by the connector"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Settings that connectors may set, as names or patterns with ``*``, and the reason.

    ``essential`` settings are allowed under the policy ``none`` as well.
    """

    reason: str
    names: tuple[str, ...]
    kind: Kind = Kind.VALUE
    essential: bool = False


@dataclass(frozen=True, slots=True)
class LibraryRules:
    """The rules of a library; ``rejected`` has names or patterns, and takes precedence."""

    allowed: tuple[Allowed, ...]
    rejected: tuple[tuple[Danger, tuple[str, ...]], ...] = ()


_LIBRDKAFKA = LibraryRules(
    allowed=(
        Allowed(
            "the brokers",
            ("bootstrap.servers", "metadata.broker.list"),
            kind=Kind.SERVER,
            essential=True,
        ),
        Allowed(
            "login and encryption; the values are in the config",
            (
                *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config"),
                *("sasl.username", "sasl.password", "enable.sasl.oauthbearer.unsecure.jwt"),
                *("sasl.oauthbearer.config", "sasl.oauthbearer.method", "sasl.oauthbearer.scope"),
                *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
                "sasl.oauthbearer.client.credentials.client.id",
                "sasl.oauthbearer.client.credentials.client.secret",
                *("sasl.oauthbearer.extensions", "sasl.oauthbearer.grant.type"),
                "sasl.oauthbearer.sub.claim.name",
                *("ssl.key.password", "ssl.key.pem", "ssl.certificate.pem", "ssl.ca.pem"),
                *("https.ca.pem", "ssl.keystore.password", "ssl.keystore.type"),
                *("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.type"),
                *("ssl.truststore.password", "ssl.truststore.certificates"),
                *("ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list"),
                "ssl.endpoint.identification.algorithm",
                "enable.ssl.certificate.verification",
            ),
            essential=True,
        ),
        Allowed(
            "Java classes: only the name of a built-in behaviour is accepted, nothing is loaded",
            ("sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class"),
            essential=True,
        ),
        Allowed(
            "certificates and keys in files",
            (
                *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
                *("ssl.keystore.location", "ssl.truststore.location", "ssl.crl.location"),
                "https.ca.location",
            ),
            kind=Kind.FILE,
            essential=True,
        ),
        Allowed(
            "where tokens come from",
            ("sasl.oauthbearer.token.endpoint.url",),
            kind=Kind.SERVER,
            essential=True,
        ),
        Allowed(
            "names of the client in the brokers' logs and metrics; where it runs",
            ("client.id", "client.rack"),
        ),
        Allowed(
            "connections: timeouts, retries, buffers",
            (
                *("client.dns.lookup", "broker.address.family", "broker.address.ttl"),
                *("connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
                *("retry.backoff.ms", "retry.backoff.max.ms", "request.timeout.ms"),
                *("socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable"),
                *("socket.send.buffer.bytes", "socket.receive.buffer.bytes", "socket.max.fails"),
                "socket.connection.setup.timeout.ms",
                *("metadata.max.age.ms", "metadata.recovery.strategy"),
                *("metadata.recovery.rebootstrap.trigger.ms", "metadata.cluster.check.enable"),
                "topic.metadata.refresh.interval.ms",
                "topic.metadata.refresh.fast.interval.ms",
                *("topic.metadata.refresh.sparse", "topic.metadata.propagation.max.ms"),
                *("message.max.bytes", "message.copy.max.bytes", "receive.message.max.bytes"),
                *("max.in.flight", "max.in.flight.requests.per.connection"),
                *("enable.metrics.push", "allow.auto.create.topics"),
                *("api.version.request", "api.version.request.timeout.ms"),
                *("api.version.fallback.ms", "broker.version.fallback"),
            ),
        ),
        Allowed(
            "reading: sizes, waits, checks; the connector's own values take precedence",
            (
                *("fetch.min.bytes", "fetch.max.bytes", "fetch.message.max.bytes"),
                *("max.partition.fetch.bytes", "fetch.wait.max.ms", "fetch.queue.backoff.ms"),
                *("fetch.error.backoff.ms", "queued.min.messages", "queued.max.messages.kbytes"),
                *("check.crcs", "isolation.level", "auto.offset.reset", "enable.auto.commit"),
                *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
                "enable.partition.eof",
            ),
        ),
        Allowed(
            "writing: batches, compression, waits",
            (
                *("acks", "request.required.acks", "linger.ms", "queue.buffering.max.ms"),
                *("queue.buffering.max.messages", "queue.buffering.max.kbytes"),
                "queue.buffering.backpressure.threshold",
                *("batch.size", "batch.num.messages", "compression.type", "compression.codec"),
                *("compression.level", "delivery.timeout.ms", "message.timeout.ms", "retries"),
                *("message.send.max.retries", "transaction.timeout.ms", "partitioner"),
                "sticky.partitioning.linger.ms",
            ),
        ),
    ),
    rejected=(
        (
            Danger.CODE,
            (
                *("plugin.*", "ssl.engine.*", "ssl_engine*", "ssl.providers", "interceptor*"),
                *("opaque", "*_cb", "*.cb", "*_cmp", "logger", "default_topic_conf"),
                *("default.topic.config", "partition.assignment.strategy", "builtin.features"),
                *("enabled_events", "internal.termination.signal", "log.queue"),
                *("ssl_key", "ssl_certificate", "ssl_ca"),
            ),
        ),
        (Danger.COMMAND, ("*.cmd",)),
        (
            Danger.IDENTITY,
            (
                *("sasl.kerberos.*", "sasl.oauthbearer.metadata.*", "ssl.ca.certificate.stores"),
                *("group.protocol*", "group.remote.assignor"),
            ),
        ),
        (Danger.FILE, ("offset.store.*",)),
        (
            Danger.RESERVED,
            ("group.id", "group.instance.id", "transactional.id", "enable.idempotence"),
        ),
    ),
)

_ICEBERG_CODE = (
    *("py-*", "*-impl", "*.impl", "*-impl.*", "auth", "auth.*", "botocore_session"),
    *("s3.signer", "s3.signer.*", "gcs.session-kwargs", "dynamodb", "adls.credential"),
)
_ICEBERG_STORES = (
    Allowed(
        "logins at the object store; the values are in the config or from the catalogue",
        (
            *("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.anonymous"),
            *("client.access-key-id", "client.secret-access-key", "client.session-token"),
            *("gcs.oauth2.token", "gcs.oauth2.token-expires-at", "adls.anon", "adls.token"),
            *("adls.account-name", "adls.account-key", "adls.sas-token", "adls.sas-token.*"),
            *("adls.tenant-id", "adls.client-id", "adls.client-secret"),
        ),
        essential=True,
    ),
    Allowed(
        "addresses of the object store",
        (
            *("s3.endpoint", "gcs.service.host", "adls.connection-string", "adls.account-host"),
            *("adls.blob-storage-authority", "adls.dfs-storage-authority"),
        ),
        kind=Kind.SERVER,
        essential=True,
    ),
    Allowed(
        "regions and forms of addresses of the object store",
        (
            *("s3.region", "client.region", "s3.force-virtual-addressing", "s3.resolve-region"),
            *("s3.path-style-access", "gcs.project-id", "gcs.default-bucket-location"),
            *("adls.blob-storage-scheme", "adls.dfs-storage-scheme"),
        ),
        essential=True,
    ),
    Allowed(
        "timeouts, buffers and encryption of files",
        (
            *("s3.connect-timeout", "s3.request-timeout", "buffer-size"),
            *("s3.server-side-encryption", "s3.sse-kms-key-id"),
        ),
    ),
)
_ICEBERG_REJECTED = (
    (Danger.CODE, _ICEBERG_CODE),
    (
        Danger.IDENTITY,
        (
            *("*profile-name", "*role-arn", "*role-session-name", "hive.kerberos*"),
            *("hdfs.kerberos*", "gcp.bigquery.credential*"),
        ),
    ),
    (Danger.SERVER, ("s3.proxy-uri", "hdfs.*", "glue.endpoint", "hf.endpoint")),
    (Danger.FILE, ("ssl", "ssl.*", "default_scheme", "default_netloc", "echo")),
)
_PYICEBERG = LibraryRules(
    allowed=(
        Allowed("the catalogue", ("uri",), kind=Kind.SERVER, essential=True),
        Allowed("the kind of catalogue: rest or sql", ("type",), essential=True),
        Allowed(
            "the location of new tables; the connector checks it", ("warehouse",), essential=True
        ),
        Allowed(
            "the login at a REST catalogue",
            ("credential", "token", "scope", "audience", "resource", "header.*"),
            essential=True,
        ),
        Allowed(
            "where the token of a REST catalogue comes from",
            ("oauth2-server-uri",),
            kind=Kind.SERVER,
            essential=True,
        ),
        Allowed(
            "signatures of a REST catalogue at AWS, with the config's keys",
            (
                *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
                "rest.sigv4.max-retries",
            ),
            essential=True,
        ),
        Allowed(
            "paths and pages of a REST catalogue",
            (
                *("prefix", "namespace-separator", "rest-page-size", "snapshot-loading-mode"),
                *("view-endpoints-supported", "scan-planning-mode"),
            ),
        ),
        Allowed(
            "the tables of a catalogue in a database",
            ("schema_version", "init_catalog_tables", "pool_pre_ping"),
        ),
        *_ICEBERG_STORES,
    ),
    rejected=_ICEBERG_REJECTED,
)
_ICEBERG_SERVER = LibraryRules(
    allowed=(
        Allowed("the catalogue's own address", ("uri",), kind=Kind.SERVER, essential=True),
        Allowed(
            "paths and pages of the catalogue",
            (
                *("prefix", "namespace-separator", "rest-page-size", "warehouse"),
                *("view-endpoints-supported", "scan-planning-mode", "snapshot-loading-mode"),
            ),
            essential=True,
        ),
        Allowed("headers that the catalogue requires", ("header.[xX]-*",), essential=True),
        *_ICEBERG_STORES,
    ),
    rejected=_ICEBERG_REJECTED,
)
_OBSTORE = LibraryRules(
    allowed=(
        Allowed("the store's address", ("endpoint", "base_url"), kind=Kind.SERVER, essential=True),
        Allowed(
            "logins; the values are in the config",
            (
                *("access_key_id", "secret_access_key", "session_token"),
                *("account_name", "account_key", "sas_token"),
            ),
            essential=True,
        ),
        Allowed(
            "a login as JSON, which may name the store's address",
            ("service_account_key",),
            kind=Kind.SERVER,
            essential=True,
        ),
        Allowed("a login in a file", ("service_account_path",), kind=Kind.FILE, essential=True),
        Allowed(
            "region and forms of addresses; the connector derives them",
            ("region", "virtual_hosted_style_request", "allow_http", "conditional_put"),
            essential=True,
        ),
    ),
    rejected=(
        (Danger.CODE, ("credential_provider", "client_options", "retry_config")),
        (
            Danger.IDENTITY,
            (
                *("*metadata_endpoint", "*container_*", "*web_identity*", "*role*", "*profile*"),
                *("*federated_token*", "*msi_*", "*imds*", "use_azure_cli", "*identity*"),
                "*application_credentials*",
            ),
        ),
        (Danger.SERVER, ("proxy_*", "*authority_host", "*sts_endpoint")),
    ),
)
_LIBPQ = LibraryRules(
    allowed=(
        Allowed(
            "server, database, user; from the URL and the connector's settings",
            ("host", "port", "dbname", "user", "password"),
            essential=True,
        ),
        Allowed("encryption", ("sslmode", "sslnegotiation", "sslsni"), essential=True),
        Allowed(
            "certificates and keys in files",
            ("sslrootcert", "sslcert", "sslkey", "sslcrl"),
            kind=Kind.FILE,
            essential=True,
        ),
        Allowed("the name of the session in the server's views", ("application_name",)),
        Allowed("parameters of the session at the server", ("options",)),
        Allowed("which of several servers", ("target_session_attrs",)),
        Allowed(
            "timeouts of the connection; the connector sets them",
            ("connect_timeout", "keepalives*", "tcp_user_timeout", "replication"),
        ),
    ),
    rejected=(
        (Danger.IDENTITY, ("service", "passfile", "gss*", "krb*", "requirepeer", "require_auth")),
        (Danger.SERVER, ("hostaddr", "oauth_*", "load_balance_hosts")),
        (Danger.FILE, ("sslcrldir", "sslkeylogfile", "servicefile")),
        (Danger.CODE, ("plugin", "creator", "module", "poolclass", "cursor_factory", "context")),
    ),
)
_PYMYSQL = LibraryRules(
    allowed=(
        Allowed(
            "server, database, user; from the URL and the connector's settings",
            ("host", "port", "database", "db", "user", "password", "passwd"),
            essential=True,
        ),
        Allowed("encryption; Drover makes the TLS context", ("sslMode", "useSSL"), essential=True),
        Allowed(
            "certificates and keys in files",
            ("ssl_ca", "ssl_cert", "ssl_key"),
            kind=Kind.FILE,
            essential=True,
        ),
        Allowed("the encoding of texts", ("charset",)),
        Allowed("timeouts; the connector sets them", ("connect_timeout",)),
    ),
    rejected=(
        (
            Danger.CODE,
            (
                *("conv", "cursorclass", "auth_plugin_map", "plugin*", "client_flag", "ssl"),
                *("creator", "module", "poolclass", "defer_connect"),
            ),
        ),
        (Danger.COMMAND, ("init_command", "sql_mode")),
        (Danger.FILE, ("read_default_*", "local_infile", "server_public_key")),
        (Danger.SERVER, ("unix_socket", "named_pipe", "bind_address")),
    ),
)
_REGISTRY = LibraryRules(
    allowed=(
        Allowed("the registry", ("url",), kind=Kind.SERVER, essential=True),
        Allowed(
            "logins; the values are in the config",
            (
                *("basic.auth.user.info", "bearer.auth.credentials.source", "bearer.auth.token"),
                *("bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.scope"),
                *("bearer.auth.logical.cluster", "bearer.auth.identity.pool.id"),
                "ssl.key.password",
            ),
            essential=True,
        ),
        Allowed(
            "where tokens come from",
            ("bearer.auth.issuer.endpoint.url",),
            kind=Kind.SERVER,
            essential=True,
        ),
        Allowed(
            "certificates and keys in files",
            ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
            kind=Kind.FILE,
            essential=True,
        ),
        Allowed(
            "timeouts, retries, caches; the converter sets them",
            (
                *("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"),
                *("cache.capacity", "cache.latest.ttl.sec"),
            ),
            essential=True,
        ),
    ),
    rejected=(
        (Danger.CODE, ("bearer.auth.custom.*", "*.function", "*.provider*")),
        (Danger.SERVER, ("proxy",)),
        (Danger.IDENTITY, ("*metadata.endpoint*", "*uami*", "*imds*")),
    ),
)
RULES: Mapping[Library, LibraryRules] = {
    Library.LIBRDKAFKA: _LIBRDKAFKA,
    Library.PYICEBERG: _PYICEBERG,
    Library.ICEBERG_SERVER: _ICEBERG_SERVER,
    Library.OBSTORE: _OBSTORE,
    Library.LIBPQ: _LIBPQ,
    Library.PYMYSQL: _PYMYSQL,
    Library.REGISTRY: _REGISTRY,
}
