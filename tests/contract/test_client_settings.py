"""Every setting of each client library is known: allowed, dangerous, or harmless.

A new version of a library with a new setting fails these tests: add the setting to the rules in
``drover/policy/client_setting_lists.py``, or to ``HARMLESS`` here after reading what it does.
"""

import ast
import ctypes
import inspect
from collections.abc import Collection
from pathlib import Path

import confluent_kafka
import obstore.store
import psycopg
import pyiceberg
import pymysql
import pytest

from drover.policy.client_setting_lists import RULES, Library
from drover.policy.client_settings import OverridePolicy, client_setting_faults, danger_of

#: Unlisted settings that name no code, command, identity, server or file.
HARMLESS: dict[Library, str] = {
    Library.LIBRDKAFKA: """topic.metadata.refresh.fast.cnt topic.blacklist debug
        reconnect.backoff.jitter.ms statistics.interval.ms log_level
        log.thread.name enable.random.seed log.connection.close
        coordinator.query.interval.ms auto.commit.interval.ms
        enable.auto.offset.store max.poll.records share.acknowledgement.mode
        enable.gapless.guarantee delivery.report.only.error
        produce.offset.report auto.commit.enable""",
    Library.PYICEBERG: """gcs.access gcs.cache-timeout gcs.consistency gcs.requester-pays
        gcs.version-aware hf.token""",
    Library.OBSTORE: """bucket checksum_algorithm copy_if_not_exists default_region
        disable_tagging disable_bulk_delete request_payer s3_express
        skip_signature sse_bucket_key_enabled sse_customer_key_base64
        sse_kms_key_id unsigned_payload bearer_token client_id client_secret
        credential_type tenant_id sas_key token use_emulator encryption_key
        object_id fabric_session_token fabric_cluster_identifier
        allow_invalid_certificates connect_timeout default_content_type
        default_headers http1_only http2_keep_alive_interval
        http2_keep_alive_timeout http2_keep_alive_while_idle http2_only
        pool_idle_timeout root_certificate read_timeout timeout user_agent""",
    Library.LIBPQ: """channel_binding client_encoding fallback_application_name
        sslcompression sslcertmode sslpassword min_protocol_version
        max_protocol_version ssl_min_protocol_version ssl_max_protocol_version
        scram_client_key""",
    Library.PYMYSQL: """collation use_unicode autocommit max_allowed_packet read_timeout
        write_timeout binary_prefix program_name ssl_disabled ssl_key_password
        ssl_verify_cert compress""",
}
#: Settings that the attacks used, and their siblings.
DANGEROUS: dict[Library, str] = {
    Library.LIBRDKAFKA: """plugin.library.paths ssl.engine.location ssl.engine.id ssl.providers
        sasl.kerberos.kinit.cmd sasl.kerberos.keytab opaque interceptors socket_cb oauth_cb
        logger group.id transactional.id offset.store.path Plugin.Library.Paths
        sasl.oauthbearer.metadata.authentication.type""",
    Library.PYICEBERG: """py-io-impl py-catalog-impl s3.retry-strategy-impl auth auth.impl
        write.py-location-provider.impl botocore_session s3.signer s3.profile-name
        client.profile-name s3.role-arn s3.proxy-uri ssl ssl.cabundle hdfs.host io-impl
        catalog-impl gcs.session-kwargs""",
    Library.OBSTORE: "credential_provider metadata_endpoint proxy_url web_identity_token_file",
    Library.LIBPQ: """service servicefile passfile hostaddr gsslib krbsrvname requirepeer
        sslkeylogfile oauth_issuer plugin""",
    Library.PYMYSQL: """read_default_file read_default_group local_infile init_command plugin_dir
        auth_plugin_map unix_socket server_public_key conv cursorclass plugin""",
    Library.REGISTRY: """proxy bearer.auth.custom.provider.function
        bearer.auth.custom.provider.config""",
}
_SITE = Path(str(pyiceberg.__file__)).parent
#: Functions of PyIceberg that import a module by name. A new one may read a new property.
_IMPORTS_CODE = {
    ("catalog/__init__.py", "_import_catalog"),  # py-catalog-impl
    ("catalog/rest/auth.py", "create"),  # auth.impl
    ("io/__init__.py", "_import_file_io"),  # py-io-impl
    ("io/pyarrow.py", "_import_retry_strategy"),  # s3.retry-strategy-impl
    ("table/locations.py", "_import_location_provider"),  # write.py-location-provider.impl
    ("transforms.py", "_try_import"),  # constants
}


def librdkafka_properties(tmp_path: Path) -> dict[str, str]:
    """The properties of the installed librdkafka with their rows in its documentation."""
    (library,) = (
        Path(str(confluent_kafka.__file__)).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*")
    )
    rdkafka, libc = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    path = tmp_path / "properties"
    stream = ctypes.c_void_p(libc.fopen(str(path).encode(), b"w"))
    rdkafka.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    rows = (line for line in path.read_text().splitlines() if line.count("|") > 3)
    return {name: row for row in rows if (name := row.partition("|")[0].strip()) != "Property"}


def unknown(library: Library, names: Collection[str]) -> list[str]:
    """The settings that are neither allowed nor dangerous nor known to be harmless."""
    return [
        name
        for name in names
        if client_setting_faults(library, {name: "/file"}, OverridePolicy.ALLOWLIST)
        and danger_of(library, name) is None
        and name not in HARMLESS[library].split()
    ]


def test_librdkafkas_settings_are_known(tmp_path: Path) -> None:
    found = librdkafka_properties(tmp_path)
    assert len(found) > 150
    assert unknown(Library.LIBRDKAFKA, [each for each in found if "---" not in each]) == []
    objects = [name for name, row in found.items() if "see dedicated API" in row]
    assert "dr_msg_cb" in objects
    for name in objects:  # callbacks and pointers
        assert danger_of(Library.LIBRDKAFKA, name) is not None, name


def test_libpqs_settings_are_known() -> None:
    found = [each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()]
    assert unknown(Library.LIBPQ, found) == []


def test_pymysqls_settings_are_known() -> None:
    found = inspect.signature(pymysql.connections.Connection.__init__).parameters
    assert unknown(Library.PYMYSQL, [each for each in found if each != "self"]) == []


def test_obstores_settings_are_known() -> None:
    stubs = Path(str(obstore.store.__file__)).parent / "_store"
    found = [
        each.target.id
        for name in ("_aws.pyi", "_gcs.pyi", "_azure.pyi", "_client.pyi")
        for node in ast.walk(ast.parse((stubs / name).read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config")
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    assert len(found) > 70
    assert unknown(Library.OBSTORE, found) == []


def test_pyicebergs_file_settings_are_known() -> None:
    found = [
        node.value.value
        for node in ast.parse((_SITE / "io/__init__.py").read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and not node.value.value.startswith(("pyiceberg.", "v1/", "location"))
    ]
    assert len(found) > 55
    assert unknown(Library.PYICEBERG, found) == []


def test_pyiceberg_imports_code_in_known_places_only() -> None:
    found = set()
    for path in _SITE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Attribute) and node.attr in ("import_module", "__import__")
                for node in ast.walk(function)
            ):
                found.add((str(path.relative_to(_SITE)), function.name))
    assert found == _IMPORTS_CODE


def test_each_setting_of_pyiceberg_that_names_a_class_is_rejected() -> None:
    texts = {
        node.value
        for path in _SITE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found = {each for each in texts if each.endswith("impl") and " " not in each}
    assert len(found) >= 5
    for name in found - {"impl"}:
        assert danger_of(Library.PYICEBERG, name) is not None, name


@pytest.mark.parametrize("policy", OverridePolicy)
@pytest.mark.parametrize("library", DANGEROUS)
def test_dangerous_settings_are_rejected_under_every_policy(
    library: Library, policy: OverridePolicy
) -> None:
    names = DANGEROUS[library].split()
    faults = dict(client_setting_faults(library, dict.fromkeys(names, "1"), policy))
    assert sorted(faults) == sorted(names)


@pytest.mark.parametrize("library", Library)
def test_each_group_of_settings_has_a_reason(library: Library) -> None:
    for each in RULES[library].allowed:
        assert each.reason
        for name in each.names:
            assert danger_of(library, name.replace("*", "x")) is None, name
