from drover.api.engine.v1 import engine_pb2 as pb
from drover_worker.shell.known_plugins import KnownPlugins

LISTED = pb.Plugin(class_name="p.Listed", aliases=["Listed"], type="sink")


def validation(connector_type: str) -> pb.ConfigValidation:
    keys = [
        pb.ConfigKey(name="login", type="PASSWORD"),
        pb.ConfigKey(name="typo", type="STRING", group="Unknown"),
    ]
    return pb.ConfigValidation(
        values=[pb.ConfigValue(key=key) for key in keys], connector_type=connector_type
    )


def test_a_plugin_is_found_by_each_of_its_names_and_listed_once() -> None:
    plugins = KnownPlugins()
    plugins.set_installed([LISTED])
    assert plugins.find("Listed") == plugins.find("p.Listed") == LISTED
    assert plugins.installed() == [LISTED]


def test_a_class_is_known_from_a_checked_config_with_the_settings_it_defines() -> None:
    plugins = KnownPlugins()
    plugins.learn("p.Other", validation("source"))
    known = plugins.find("p.Other")
    assert known is not None
    assert known.type == "source"
    assert [key.name for key in known.config_keys] == ["login"]
    assert plugins.installed() == []


def test_nothing_is_learned_of_a_class_that_was_not_found() -> None:
    plugins = KnownPlugins()
    plugins.learn("p.Nope", validation(""))
    assert plugins.find("p.Nope") is None


def test_each_engine_is_asked_once_about_a_class() -> None:
    plugins = KnownPlugins()
    plugins.set_installed([LISTED])
    names = ["", "Listed", "p.Nope"]
    assert plugins.unasked(names) == ["p.Nope"]
    plugins.note_asked("p.Nope")
    assert plugins.unasked(names) == []
    plugins.engine_ended()
    assert plugins.unasked(names) == ["p.Nope"]
    assert not plugins.listed
    assert plugins.find("Listed") == LISTED


def test_versions_of_classes_are_no_secrets() -> None:
    plugins = KnownPlugins()
    for name in ("value.converter", "transforms.a", "predicates.a"):
        assert plugins.is_secret_record_setting(f"{name}.plugin.version") is False
