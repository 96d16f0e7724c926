"""Further forms of the attacks by settings: code, hosts and files that a config names."""

from collections.abc import Mapping

import pytest

from drover.config.plugin_modules import MODULES_VARIABLE
from drover.policy.client_settings import POLICY_VARIABLE
from drover.policy.egress import HOSTS_VARIABLE
from tests.support import plugins_for_tests, transforms_for_tests
from tests.support.attacks import (
    CALLS,
    Attack,
    answers_of_all,
    audit_lines,
    check_audited,
    check_rejection,
    given_to,
    state_of,
    violations,
)
from tests.support.each import check_each
from tests.support.secure_cluster import SecureCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.faults("security"),
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

KAFKA_SOURCE = {
    "connector.class": "KafkaSource",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "topics": "t",
}
#: Only the translation of groups' offsets connects to the target.
GROUP_SYNC = {
    **KAFKA_SOURCE,
    "sync.group.offsets.enabled": "true",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
}
KAFKA_SINK = {
    "connector.class": "KafkaSink",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
    "topics": "t",
}
ICEBERG = {
    "connector.class": "IcebergSink",
    "topics": "t",
    "iceberg.tables": "app.t",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
DATAGEN = {"connector.class": "DatagenSource", "topic": "t", "quickstart": "orders"}
JDBC = {"connector.class": "JdbcSource", "mode": "bulk", "topic.prefix": "t-"}
HTTP = {"connector.class": "HttpSource", "topic": "t", "http.url": "http://127.0.0.1:1/"}
FILES = {"connector.class": "FilesSource", "path": "s3://b/x", "topic": "t", "format": "text"}
CDC = {
    "connector.class": "PostgresCdcSource",
    "database.hostname": "127.0.0.1",
    "database.user": "u",
    "database.dbname": "d",
    "topic.prefix": "t",
}

REGISTRY = {
    **DATAGEN,
    "value.converter": "AvroConverter",
    "value.converter.schema.registry.url": "http://127.0.0.1:1",
}

#: Settings of librdkafka with code, commands and identities, in several spellings.
LIBRDKAFKA = (
    *("plugin.library.paths", "Plugin.Library.Paths", "PLUGIN.LIBRARY.PATHS"),
    *("plugin.library.paths.", "plugin..library.paths", "plugin.library.path", "plugin_library"),
    *("plugin\u200b.library.paths", "\u0440lugin.library.paths", "topic.plugin.library.paths"),
    *("ssl.engine.location", "ssl.engine.id", "ssl_engine_callback_data", "ssl.providers"),
    *("interceptor.classes", "interceptors", "partition.assignment.strategy", "builtin.features"),
    *("error_cb", "oauth_cb", "stats_cb", "on_commit", "on_delivery", "opaque", "logger"),
    *("default.topic.config", "enabled_events", "offset.store.path", "offset.store.method"),
    *("sasl.kerberos.kinit.cmd", "sasl.kerberos.keytab", "sasl.kerberos.principal"),
    *("sasl.client.callback.handler.class", "sasl.login.class", "ssl.engine.factory.class"),
    *("ssl.ca.certificate.stores", "sasl.oauthbearer.metadata.authentication.type"),
    *("group.id", "transactional.id", "group.instance.id", "metric.reporters", "config.providers"),
)
#: Settings of PyIceberg with code, identities and servers.
PYICEBERG = (
    *("py-io-impl", "Py-IO-Impl", "PY-IO-IMPL", "py-catalog-impl", "py-io-impl.", "py_io_impl"),
    *("s3.retry-strategy-impl", "write.py-location-provider.impl", "rest.auth.impl"),
    *("auth", "auth.type", "auth.impl", "auth.custom.impl", "s3.signer", "s3.signer.uri"),
    *("s3.proxy-uri", "s3.role-arn", "s3.profile-name", "client.profile-name", "glue.endpoint"),
    *("gcs.session-kwargs", "adls.credential", "botocore_session", "hdfs.host", "hf.endpoint"),
    *("ssl.cabundle", "ssl.client.cert", "hive.kerberos-authentication", "gcp.bigquery.credential"),
)
#: Classes that are no connectors, and modules that are not allowed.
CLASSES = (
    *("os.system", "subprocess.Popen", "subprocess:Popen", "builtins.exec", "runpy.run_path"),
    *("importlib.import_module", "pickle.loads", "antigravity.fly", "ctypes.CDLL"),
    f"{plugins_for_tests.__name__}.os.system",
    f"{plugins_for_tests.__name__}:os.kill",
    *(
        "../../tmp/evil.Connector",
        "tests.support.no_module.Connector",
        "OS.SYSTEM",
        "os\u2024system",
    ),
)


def code_attacks() -> list[Attack]:
    found: list[Attack] = []
    for base, prefixes in (
        (KAFKA_SOURCE, ("source.cluster.", "source.consumer.")),
        (GROUP_SYNC, ("target.cluster.",)),
        (KAFKA_SINK, ("target.cluster.", "target.producer.")),
    ):
        for prefix in prefixes:
            listed = LIBRDKAFKA if prefix.endswith("cluster.") else LIBRDKAFKA[::4]
            found += given_to(base, ((f"{prefix}{each}", "/tmp/evil") for each in listed), "")
    found += given_to(ICEBERG, ((f"iceberg.catalog.{each}", "os.system") for each in PYICEBERG), "")
    return found


def function(name: str) -> dict[str, str]:
    return {**DATAGEN, "transforms": "f", "transforms.f.type": "ArrowFunction", NAME: name}


NAME = "transforms.f.function"
FUNCTIONS = (
    *("os:system", "subprocess:Popen", "builtins:exec", "shutil.rmtree", "posix.system"),
    f"{plugins_for_tests.__name__}:os.system",
    f"{plugins_for_tests.__name__}:signal.raise_signal",
    f"{transforms_for_tests.__name__}:threading.Thread",
    f"{transforms_for_tests.__name__}:pa.compute.call_function",
)


async def check_all(secure: SecureCluster, user: str, call: str, attacks: list[Attack]) -> None:
    """Check that each attack is rejected by its rule and changes nothing."""
    before = await state_of(secure)

    def line_count() -> int:
        return sum(line["call"] == CALLS[call] for line in audit_lines(secure))

    lines_before = line_count()
    found = await answers_of_all(secure, user, call, attacks)

    def check(pair: tuple[Attack, object]) -> None:
        attack, answer = pair
        assert isinstance(answer, Mapping), answer
        check_rejection(attack, answer)

    check_each(zip(attacks, found, strict=True), check, lambda pair: pair[0].id)
    await check_audited(secure, user, call)
    await wait_until_async(
        lambda: line_count() - lines_before == len(attacks), describe="a line for each attack"
    )
    assert await state_of(secure) == before


@pytest.mark.parametrize(("user", "call"), [("operator-of-a", "validate"), ("admin-of-a", "put")])
async def test_code_and_identities_under_further_names(
    secure: SecureCluster, user: str, call: str
) -> None:
    await check_all(secure, user, call, code_attacks())


@pytest.mark.parametrize(
    ("user", "call"), [("operator-of-a", "validate"), ("admin-of-a", "create")]
)
async def test_classes_that_are_no_plugins(secure: SecureCluster, user: str, call: str) -> None:
    attacks = [
        Attack({"connector.class": each, "topic": "t"}, "connector.class", MODULES_VARIABLE)
        for each in CLASSES
        if not each.startswith(("../", "tests.", "OS.", "os\u2024"))
    ]
    attacks += [Attack(function(each), NAME, MODULES_VARIABLE) for each in FUNCTIONS]
    await check_all(secure, user, call, attacks)


async def test_names_that_are_no_classes_are_unknown(secure: SecureCluster) -> None:
    names = [each for each in CLASSES if each.startswith(("../", "tests.", "OS.", "os\u2024"))]
    attacks = [Attack({"connector.class": each}) for each in names]
    for kind in ("transforms", "predicates"):
        settings = {kind: "f", f"{kind}.f.type": "os.system"}
        attacks.append(Attack({**DATAGEN, **settings}, f"{kind}.f.type"))
    attacks += [
        Attack({**DATAGEN, name: "subprocess.Popen"}, name)
        for name in ("value.converter", "key.converter", "header.converter")
    ]
    for attack, found in zip(
        attacks, await answers_of_all(secure, "operator-of-a", "validate", attacks), strict=True
    ):
        assert isinstance(found, Mapping), (attack, found)
        assert found.get(attack.setting or "connector.class"), (attack, found)


async def test_a_data_source_is_a_class_of_an_allowed_module(secure: SecureCluster) -> None:
    base = {"connector.class": "PythonDataSource", "topic": "t"}
    attacks = given_to(
        base,
        (("datasource", each) for each in ("os:path", "subprocess:Popen", *FUNCTIONS[-4:])),
        MODULES_VARIABLE,
    )
    await check_all(secure, "admin-of-a", "create", attacks)


@pytest.mark.parametrize("call", CALLS)
async def test_each_call_with_a_config_rejects_the_same(secure: SecureCluster, call: str) -> None:
    kept = {"connector.class": "FileStreamSource", "topic": "t"}
    kept["file"] = str(secure.cluster.directory / "files" / "in.txt")
    name = f"a-{call}"
    async with secure.client("admin-of-a") as client:
        await client.put_connector_config(name, kept, timeout_s=110)
        before = await state_of(secure)
        for attack in (
            Attack(
                {**KAFKA_SOURCE, "source.cluster.plugin.library.paths": "/tmp/evil"},
                "source.cluster.plugin.library.paths",
                POLICY_VARIABLE,
            ),
            Attack({**ICEBERG, "iceberg.catalog.py-io-impl": "os.system"}, "", POLICY_VARIABLE),
            Attack({**HTTP, "http.url": "http://0xA9FEA9FE/"}, "http.url", HOSTS_VARIABLE),
            Attack({**kept, "file": "/proc/self/root/etc/passwd"}, "file", "DROVER_FILE_ROOTS"),
        ):
            other = "a-new" if call in ("create", "plan", "preview") else name
            check_rejection(attack, await violations(client, call, attack.config, other))
            await check_audited(secure, "admin-of-a", call, other)
        assert await state_of(secure) == before
        await client.delete_connector(name)


async def test_settings_of_other_prefixes_reach_no_library(secure: SecureCluster) -> None:
    """They are unknown, so the answer warns that they have no effect."""
    names = [
        f"{prefix}{each}"
        for prefix in (
            *(
                "consumer.override.",
                "producer.override.",
                "admin.override.",
                "consumer.",
                "client.",
            ),
            *("transforms.x.client.", "value.converter.client.", "database.properties.", "driver."),
        )
        for each in ("plugin.library.paths", "sasl.kerberos.kinit.cmd")
    ]
    file = str(secure.cluster.directory / "files" / "in.txt")
    config = {"connector.class": "FileStreamSource", "topic": "t", "file": file}
    async with secure.client("operator-of-a") as client:
        found = await client.validate_config(
            {"name": "a-x", **config, **dict.fromkeys(names, "/tmp/evil")}, timeout_s=110
        )
    warned = {each.field.removeprefix('config["').removesuffix('"]') for each in found.warnings}
    assert warned >= set(names)


#: The address of a cloud's metadata service in forms that systems or clients accept.
NUMBERS = (
    *("169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518"),
    *("0xa9.0xfe.0xa9.0xfe", "169.16689662", "169.254.169.254.", "0xA9FEA9FE."),
    *("\uff11\uff16\uff19.254.169.254", "169\u3002254\u3002169\u3002254"),
    *("169.254.170.2", "100.100.100.200", "168.63.129.16"),
)
BRACKETS = (
    *(
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[::169.254.169.254]",
        "[::ffff:0:a9fe:a9fe]",
    ),
    *("[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[2001::5601:5601]"),
    *("[fd00:ec2::254]", "[fd20:ce::254]", "[fe80::1]", "[fe80::1%eth0]", "[FE80:0:0:0:0:0:0:1]"),
)
#: Texts before and after a host, in which parsers of URLs find different hosts.
DIFFERENT = (
    "http://169.254.169.254\\@127.0.0.1/",
    "http://%31%36%39.254.169.254/",
    "http://169.254.169.254%2f@127.0.0.1/",
    "http://169.254.169.254%09@127.0.0.1/",
)
#: Settings with a server, in the forms of their values.
SERVERS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "http.url": (HTTP, "http://{}/latest/meta-data"),
    "store.url": (FILES, "http://{}:80"),
    "iceberg.catalog.uri": (ICEBERG, "http://{}/latest"),
    "iceberg.catalog.oauth2-server-uri": (ICEBERG, "https://{}/token"),
    "iceberg.catalog.s3.endpoint": (ICEBERG, "HTTP://{}"),
    "source.cluster.bootstrap.servers": (KAFKA_SOURCE, "127.0.0.1:1,PLAINTEXT://{}:80"),
    "target.cluster.bootstrap.servers": (KAFKA_SINK, "127.0.0.1:1, {}:80"),
    "target.cluster.sasl.oauthbearer.token.endpoint.url": (KAFKA_SINK, "https://{}/token"),
    "connection.url": (JDBC, "jdbc:postgresql://{}:5432/d"),
    "value.converter.schema.registry.url": (
        {**DATAGEN, "value.converter": "AvroConverter"},
        "http://127.0.0.1:1,http://{}",
    ),
    "value.converter.bearer.auth.issuer.endpoint.url": (REGISTRY, "https://{}/token"),
    "oauth2.access.token.url": (
        {**HTTP, "http.authorization.type": "oauth2", "oauth2.client.id": "a"},
        "https://{}/token",
    ),
}
URLS = ("store.url", "iceberg.catalog.uri", "iceberg.catalog.s3.endpoint")


@pytest.mark.parametrize("setting", SERVERS)
async def test_metadata_services_in_every_form(secure: SecureCluster, setting: str) -> None:
    base, form = SERVERS[setting]
    ascii_only = setting == "store.url"
    hosts = [each for each in (*NUMBERS, *BRACKETS) if each.isascii() or not ascii_only]
    values = [form.format(each) for each in hosts]
    if setting in URLS:
        values += DIFFERENT
    attacks = given_to(base, ((setting, each) for each in values), HOSTS_VARIABLE)
    await check_all(secure, "operator-of-a", "validate", attacks)


async def test_metadata_services_as_hosts_of_databases(secure: SecureCluster) -> None:
    numbers = [("database.hostname", each) for each in NUMBERS if each.isascii()]
    attacks = given_to(CDC, numbers, HOSTS_VARIABLE)
    urls = [f"jdbc:{kind}://{each}/d" for kind in ("mysql", "mariadb") for each in NUMBERS]
    attacks += given_to(JDBC, (("connection.url", each) for each in urls), HOSTS_VARIABLE)
    await check_all(secure, "operator-of-a", "validate", attacks)


def forbidden_files(directory: str) -> list[str]:
    """Paths to files of the worker or the system, in forms that clients could resolve."""
    files = f"{directory}/files"
    return [
        f"{directory}/data/config.db",
        f"{files}/../data/config.db",
        f"{files}/../certs/service-key.pem",
        f"{files}/./../././data/config.db",
        f"{directory}//data//config.db",
        f"/{directory}/data/config.db",
        f"/proc/self/root{directory}/data/config.db",
        f"/proc/self/cwd/{directory}/data/config.db",
        "/proc/self/environ",
        "/proc/thread-self/environ",
        "/dev/fd/3",
        "/sys/kernel/notes",
        "/etc/passwd",
        f"{directory}/audit.log",
        f"{directory}/Files/a",
        f"{directory}/files\u200b/a",
        f"{directory}/f\u0131les/a",
        f"{directory}/files2/a",
    ]


GLOBS = ("{d}/da*/config.db", "{d}/files/../*/config.db", "{d}/[d]ata/config.db", "/e*c/passwd")
TEXTS = (
    "~/x",
    "$HOME/x",
    "${HOME}/x",
    "data/config.db",
    "./x",
    "../x",
    "file:///etc/passwd",
    "%2fetc",
)


@pytest.mark.parametrize("kind", ["FileStreamSource", "FileStreamSink", "FilesSource", "FilesSink"])
async def test_files_outside_of_the_roots_in_every_form(secure: SecureCluster, kind: str) -> None:
    directory = str(secure.cluster.directory)
    setting = "file" if kind.startswith("FileStream") else "path"
    topics = {"topic": "t"} if kind.endswith("Source") else {"topics": "t"}
    base = {"connector.class": kind, "format": "text", **topics}
    paths = forbidden_files(directory)
    if kind.endswith("Source"):
        paths += [each.format(d=directory) for each in GLOBS]
    attacks = given_to(base, ((setting, each) for each in paths), "")
    await check_all(secure, "operator-of-a", "validate", attacks)
    texts = given_to(base, ((setting, each) for each in TEXTS), "")
    for attack, found in zip(
        texts, await answers_of_all(secure, "operator-of-a", "validate", texts), strict=True
    ):
        assert isinstance(found, Mapping), (attack, found)
        assert setting in found, (attack, found)


#: Settings with a file, and the forms of their values.
FILE_SETTINGS: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "connection.url": (
        JDBC,
        (
            *("jdbc:sqlite:{}", "sqlite://{}", "sqlite:{}?mode=ro", "jdbc:sqlite:{}?vfs=unix-none"),
            *("jdbc:sqlite:{}?cache=shared&immutable=1", "sqlite+pysqlite:///{}"),
        ),
    ),
    "iceberg.catalog.uri": (
        {**ICEBERG, "iceberg.catalog.type": "sql", "iceberg.catalog.warehouse": "s3://b/w"},
        ("jdbc:sqlite:{}", "sqlite:///{}?uri=true"),
    ),
    "source.cluster.ssl.ca.location": (KAFKA_SOURCE, ("{}",)),
    "source.cluster.ssl.key.location": (KAFKA_SOURCE, ("{}",)),
    "source.cluster.ssl.keystore.location": (KAFKA_SOURCE, ("{}",)),
    "target.cluster.ssl.truststore.location": (KAFKA_SINK, ("{}",)),
    "gcs.credentials.path": ({**FILES, "path": "gs://b/x"}, ("{}",)),
    "database.sslrootcert": (CDC, ("{}",)),
    "database.sslkey": (CDC, ("{}",)),
    "value.converter.schema.registry.ssl.truststore.location": (REGISTRY, ("{}",)),
    "iceberg.catalog.warehouse": (
        ICEBERG,
        (
            *("{}", "file://{}", "file:{}", "FILE://{}", "file://localhost{}"),
            "file:///../..{}",
        ),
    ),
    "table.uri": ({"connector.class": "DeltaSink", "topics": "t"}, ("{}", "{}/${{topic}}")),
}


@pytest.mark.parametrize("setting", FILE_SETTINGS)
async def test_files_of_client_libraries_in_every_form(secure: SecureCluster, setting: str) -> None:
    base, forms = FILE_SETTINGS[setting]
    paths = forbidden_files(str(secure.cluster.directory))
    values = [forms[0].format(each) for each in paths]
    values += [form.format(each) for form in forms[1:] for each in paths[:3]]
    attacks = given_to(base, ((setting, each) for each in values), "")
    await check_all(secure, "operator-of-a", "validate", attacks)


SQLITE_FORMS = (
    *("jdbc:sqlite:file:/etc/passwd", "jdbc:sqlite:file:///etc/passwd?mode=ro&vfs=unix-none"),
    *("jdbc:sqlite::memory:", "sqlite://", "sqlite:data.db", "sqlite+pysqlcipher://:k@/x.db"),
    *("jdbc:sqlite:\\\\host\\share", "jdbc:sqlite::resource:http://169.254.169.254/evil.db"),
)


async def test_other_forms_of_sqlite_are_rejected(secure: SecureCluster) -> None:
    attacks = given_to(JDBC, (("connection.url", each) for each in SQLITE_FORMS), "")
    for attack, found in zip(
        attacks, await answers_of_all(secure, "operator-of-a", "validate", attacks), strict=True
    ):
        assert isinstance(found, Mapping), (attack, found)
        assert "connection.url" in found, (attack, found)
