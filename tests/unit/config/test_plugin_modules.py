import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from drover.config import plugin_modules
from drover.config.plugin_modules import MODULES_VARIABLE, module_fault, module_names
from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.transform import arrow_function
from drover.transform.arrow_function import ArrowFunction

NEVER = "never_imported_by_a_config"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that must not be imported."""
    (tmp_path / f"{NEVER}.py").write_text("def pass_on(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(MODULES_VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, NEVER, raising=False)
    return NEVER


def fault_of_function(name: str) -> str | None:
    (violation, *_) = ArrowFunction.config_def().parse({"function": name}).violations or (None,)
    return None if violation is None else violation.description


@pytest.mark.parametrize(
    ("module", "allowed"),
    [("a", True), ("a.b", True), ("ab", False), ("b.c", True), ("b.c.d", True), ("b", False)],
)
def test_what_lies_below_a_name_is_allowed(module: str, allowed: bool) -> None:
    fault = module_fault(module, {MODULES_VARIABLE: "a, b.c"})
    assert (fault is None) == allowed
    if fault is not None:
        assert "DROVER_PLUGIN_MODULES (a, b.c) does not include it" in fault


@pytest.mark.parametrize("text", ["a-b", "a..b", "../x", "a b"])
def test_what_cannot_be_a_module_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is not a module name"):
        module_names(text)


def test_nothing_is_imported_because_a_config_says_so(trap: str) -> None:
    with pytest.raises(PluginNotFoundError, match=r"'never_\w+' is not allowed"):
        PluginRegistry(lambda: ()).find(f"{trap}.Connector")
    assert "is not allowed" in (fault_of_function(f"{trap}:pass_on") or "")
    assert trap not in sys.modules


def test_what_the_operator_allows_is_imported(trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODULES_VARIABLE, trap)
    assert fault_of_function(f"{trap}:pass_on") is None
    assert trap in sys.modules


@pytest.mark.parametrize("name", ["subprocess.Popen", "run", "subprocess.os.system"])
def test_objects_that_an_allowed_module_imports_are_not_allowed(
    name: str, trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODULES_VARIABLE, trap)
    (tmp_path / f"{NEVER}.py").write_text("import subprocess\nfrom subprocess import run\n")
    fault = fault_of_function(f"{trap}:{name}") or ""
    assert "is not allowed" in fault
    assert f"{MODULES_VARIABLE} ({trap}) does not include it" in fault


def test_a_function_is_found_by_its_entry_point(trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("passes-on", f"{trap}:pass_on", arrow_function.GROUP)
    monkeypatch.setattr(
        plugin_modules, "entry_points", lambda **asked: EntryPoints([point]).select(**asked)
    )
    assert fault_of_function("passes-on") is None
    assert (
        ArrowFunction({"function": "passes-on", "timeout.ms": 1_000})._function.__name__
        == "pass_on"
    )
    assert "(passes-on), not 'other'" in (fault_of_function("other") or "")
