import pytest

from drover.api.engine.v1 import engine_pb2
from drover.errors import InvalidArgumentError
from drover.model.config import ConfigSnapshot
from drover_worker.core.context import Context, HerderSettings
from drover_worker.known_plugins import KnownPlugins
from drover_worker.presenter import (
    MASK,
    Presenter,
    present_key,
    present_validation,
    take_page,
    take_page_by_name,
)
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


def presenter(*, known: bool = True) -> Presenter:
    context = Context(HerderSettings(worker_id="w:1", group_id="drover"))
    connector = entry("c", config={"connector.class": "Source", "db.login": "s3cret"})
    context.view.load(ConfigSnapshot(1, {"c": connector}, {}))
    plugins = KnownPlugins()
    if known:
        plugins.set_installed([PLUGIN])
    return Presenter(context, plugins)


def test_what_the_plugin_declares_a_password_is_masked() -> None:
    config = {"connector.class": "Source", "db.login": "s3cret", "url": "u", "token.bucket": "5"}
    assert presenter().masked(config, config) == {**config, "db.login": MASK}


def test_what_no_one_declares_and_looks_like_a_secret_is_masked() -> None:
    config = {"connector.class": "Source", "override.sasl.jaas.config": "x", "my.password": "y"}
    masked = presenter().masked(config, config)
    assert masked["override.sasl.jaas.config"] == MASK
    assert masked["my.password"] == MASK


def test_of_an_unknown_plugin_only_the_common_settings_are_shown() -> None:
    config = {"connector.class": "Source", "name": "c", "url": "u"}
    assert presenter(known=False).masked(config, config) == {**config, "url": MASK}


def test_a_connector_is_shown_without_its_secrets() -> None:
    shown = presenter().connector("c")
    assert shown.config["db.login"] == MASK
    assert "s3cret" not in str(shown)


def test_a_passwords_default_is_masked() -> None:
    key = engine_pb2.ConfigKey(name="p", type="PASSWORD", default_value="s3cret")
    assert present_key(key).default_value == MASK


def test_the_values_of_a_validation_are_masked() -> None:
    key = engine_pb2.ConfigKey(name="p", type="PASSWORD")
    value = engine_pb2.ConfigValue(key=key, value="s3cret", errors=["is too short"])
    shown = present_validation(engine_pb2.ConfigValidation(values=[value]))
    assert shown.error_count == 1
    assert shown.violations[0].field == 'config["p"]'
    assert "s3cret" not in str(shown)


def test_a_validation_that_failed_is_one_fault_of_the_class() -> None:
    shown = present_validation(engine_pb2.Failure(message="no such plugin"))
    assert [(v.field, v.description) for v in shown.violations] == [
        ('config["connector.class"]', "no such plugin")
    ]


def test_pages_are_bounded_by_count_and_size() -> None:
    page, token = take_page(range(10), "", count_max=4)
    assert (list(page), token) == ([0, 1, 2, 3], "4")
    page, token = take_page(range(10), "8", count_max=4)
    assert (list(page), token) == ([8, 9], "")
    page, token = take_page(range(3), "", size_bytes=lambda _: 600_000)
    assert (list(page), token) == ([0], "1")
    page, token = take_page(range(3), "1", size_bytes=lambda _: 3_000_000)
    assert (list(page), token) == ([1], "2")


def test_a_token_of_somebody_else_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        take_page([], "abc")


def test_pages_by_name_are_safe_against_changes() -> None:
    page, token = take_page_by_name(["a", "b", "c"], "", 2)
    assert (list(page), token) == (["a", "b"], "b")
    page, token = take_page_by_name(["a", "bb", "c"], token, 2)
    assert (list(page), token) == (["bb", "c"], "")


@pytest.mark.parametrize("size", [-1, 1001])
def test_a_page_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgumentError):
        take_page_by_name([], "", size)
