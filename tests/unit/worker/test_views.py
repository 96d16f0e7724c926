import pytest

from drover.api.engine.v1 import engine_pb2
from drover.model.config import ConfigSnapshot
from drover.model.secrets import MASK
from drover_worker.admin.masking import kept_values, mask_violations
from drover_worker.admin.views import ConnectorViews, key_view, validation_view
from drover_worker.core.context import Context, HerderSettings
from drover_worker.shell.known_plugins import KnownPlugins
from tests.support.herder_driver import entry

PLUGIN = engine_pb2.Plugin(
    class_name="Source",
    type="source",
    config_keys=[
        engine_pb2.ConfigKey(name="db.login", type="PASSWORD"),
        engine_pb2.ConfigKey(name="token.bucket", type="INT"),
        engine_pb2.ConfigKey(name="url", type="STRING"),
    ],
)

RECORD_SETTINGS = [
    engine_pb2.RecordSetting(kind="converter", name="schemas.enable"),
    engine_pb2.RecordSetting(kind="converter", name="login", secret=True),
    engine_pb2.RecordSetting(kind="converter", name="login"),
    engine_pb2.RecordSetting(kind="transforms", name="field"),
    engine_pb2.RecordSetting(kind="predicates", name="pattern"),
]


def views(*, known: bool = True) -> ConnectorViews:
    context = Context(HerderSettings(worker_id="w:1", group_id="drover"))
    connector = entry("c", config={"connector.class": "Source", "db.login": "s3cret"})
    context.view.load(ConfigSnapshot(1, {"c": connector}, {}))
    plugins = KnownPlugins()
    if known:
        plugins.set_installed([PLUGIN], RECORD_SETTINGS)
    return ConnectorViews(context, plugins, providers={"file"})


def test_what_the_plugin_declares_a_password_is_masked() -> None:
    config = {"connector.class": "Source", "db.login": "s3cret", "url": "u", "token.bucket": "5"}
    assert views().masked(config, config, show_undefined=True) == {**config, "db.login": MASK}


def test_a_placeholder_of_a_config_provider_is_no_secret() -> None:
    shown = {"db.login": "${file:/run/secrets/db:login}"}
    assert views().masked(shown, {"connector.class": "Source"}, show_undefined=True) == shown
    for value in ("${other:a:b}", "${file:/run/secrets/db:login}x"):
        masked = views().masked(
            {"db.login": value}, {"connector.class": "Source"}, show_undefined=True
        )
        assert masked == {"db.login": MASK}


def test_what_no_one_declares_and_looks_like_a_secret_is_masked() -> None:
    config = {
        "connector.class": "Source",
        "override.sasl.jaas.config": "x",
        "override.ssl.keystore.key": "x",
        "my.password": "y",
        "value.converter.basic.auth.user.info": "name:z",
    }
    masked = views().masked(config, config, show_undefined=True)
    assert masked["value.converter.basic.auth.user.info"] == MASK
    assert masked["override.sasl.jaas.config"] == MASK
    assert masked["override.ssl.keystore.key"] == MASK
    assert masked["my.password"] == MASK


def test_a_password_of_another_class_stays_masked_when_the_class_is_changed() -> None:
    """The new class does not define the setting, so that it would be shown to an admin."""
    context = Context(HerderSettings(worker_id="w:1", group_id="drover"))
    plugins = KnownPlugins()
    other = engine_pb2.Plugin(class_name="Sink", type="sink")
    plugins.set_installed([PLUGIN, other], RECORD_SETTINGS)
    plugins.learn(
        "mine.Source",
        engine_pb2.ConfigValidation(
            connector_type="source",
            values=[
                engine_pb2.ConfigValue(key=engine_pb2.ConfigKey(name="pass", type="PASSWORD")),
                engine_pb2.ConfigValue(key=engine_pb2.ConfigKey(name="plain", type="STRING")),
            ],
        ),
    )
    config = {"connector.class": "Sink", "db.login": "s3cret", "pass": "s3cret", "plain": "shown"}
    shown = ConnectorViews(context, plugins).masked(config, config, show_undefined=True)
    assert shown == {**config, "db.login": MASK, "pass": MASK}


SHOWN = {
    "connector.class": "Source",
    "name": "c",
    "tasks.max": "2",
    "url": "u",
    "value.converter.schemas.enable": "true",
    "transforms.a.type": "Filter",
    "transforms.a.field": "f",
    "predicates.p.type": "TopicNameMatches",
    "predicates.p.pattern": "x",
    "topic.creation.default.partitions": "1",
}


def test_what_no_plugin_defines_is_shown_to_those_who_may_change_it_only() -> None:
    undefined = {
        "X-Auth": "s3cret",
        "source.consumer.anything": "s3cret",
        "transforms.a.other": "s3cret",
        "value.converter.other": "s3cret",
        "predicates.p.field": "s3cret",
        "url.field": "s3cret",
    }
    config = {**SHOWN, **undefined, "value.converter.login": "s3cret"}
    masked = views().masked(config, config, show_undefined=False)
    assert masked == {**SHOWN, **dict.fromkeys([*undefined, "value.converter.login"], MASK)}
    masked = views().masked(config, config, show_undefined=True)
    assert masked == {**SHOWN, **undefined, "value.converter.login": MASK}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("db://ann:s3cret@host", False),
        ("jdbc:db://host/x?password=s3cret", False),
        ("db://ann:${other:/a:b}@host", False),
        ("db://ann:${file:/run/secrets/db:password}@host", True),
        ("db://ann@host", True),
    ],
)
def test_a_url_with_a_password_is_masked_under_any_name(url: str, shown: bool) -> None:
    config = {"connector.class": "Source", "url": url}
    masked = views().masked(config, config, show_undefined=True)
    assert masked["url"] == (url if shown else MASK)


def test_a_validated_value_that_no_plugin_defines_is_masked_too() -> None:
    key = engine_pb2.ConfigKey(name="X-Auth", type="STRING", group="Unknown")
    answer = engine_pb2.ConfigValidation(values=[engine_pb2.ConfigValue(key=key, value="s3cret")])
    for show_undefined, shown in ((True, "s3cret"), (False, MASK)):
        (value,) = validation_view(answer, show_undefined=show_undefined).values
        assert value.value == shown


def test_of_an_unknown_plugin_only_the_common_settings_are_shown() -> None:
    config = {"connector.class": "Source", "name": "c", "url": "u"}
    assert views(known=False).masked(config, config, show_undefined=True) == {**config, "url": MASK}


def test_a_connector_is_shown_without_its_secrets() -> None:
    shown = views().connector("c", show_undefined=True)
    assert shown.config["db.login"] == MASK
    assert "s3cret" not in str(shown)


def test_a_passwords_default_is_masked() -> None:
    key = engine_pb2.ConfigKey(name="p", type="PASSWORD", default_value="s3cret")
    assert key_view(key).default_value == MASK


def test_the_values_of_a_validation_are_masked() -> None:
    key = engine_pb2.ConfigKey(name="p", type="PASSWORD")
    value = engine_pb2.ConfigValue(key=key, value="s3cret", errors=["is too short"])
    shown = validation_view(engine_pb2.ConfigValidation(values=[value]), show_undefined=True)
    assert shown.error_count == 1
    assert shown.violations[0].field == 'config["p"]'
    assert "s3cret" not in str(shown)


def test_a_validation_that_failed_is_one_fault_of_the_class() -> None:
    shown = validation_view(engine_pb2.Failure(message="no such plugin"), show_undefined=True)
    assert [(v.field, v.description) for v in shown.violations] == [
        ('config["connector.class"]', "no such plugin")
    ]


@pytest.mark.parametrize(
    ("key", "value", "is_mask"),
    [
        ("db.login", MASK, True),
        ("db.password", MASK, True),
        # of kafka-ui, of Confluent's products, and of others
        ("db.password", "******", True),
        ("db.password", "*" * 16, True),
        ("db.password", "••••••••", True),
        ("db.password", "*****", False),
        ("db.password", "******x", False),
        ("separator", "******", False),
        # of the transform MaskField, for records
        ("transforms.hide.replacement", MASK, False),
        ("transforms.hide.replacement", "*" * 16, False),
    ],
)
def test_a_mask_is_no_secret(key: str, value: str, *, is_mask: bool) -> None:
    found = [each.field for each in mask_violations({"topic": "t", key: value})]
    assert found == ([f'config["{key}"]'] if is_mask else [])
    assert kept_values({key: value}, {key: "old"}) == ({key: "old"} if is_mask else {})
    assert kept_values({key: value}, {}) == {}
