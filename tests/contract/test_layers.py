"""The import-linter contracts exist and cover every package."""

import tomllib
from typing import Any

import pytest

from tests.support.repository import REPOSITORY, python_files

CONTRACTS: dict[str, Any] = {
    contract["name"]: contract
    for contract in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"]
}


def packages_of(root: str, depth: int) -> set[str]:
    """The names of packages and modules right below a root folder."""
    return {
        path.parts[depth].removesuffix(".py")
        for path in python_files(root)
        if len(path.parts) > depth and path.parts[depth] != "__init__.py"
    }


def test_every_part_of_the_library_has_its_layer() -> None:
    layers = {
        module.strip() for layer in CONTRACTS["Layers"]["layers"] for module in layer.split(":")
    }
    assert {f"drover.{name}" for name in packages_of("shared", 2)} == {
        layer for layer in layers if layer.startswith("drover.")
    }


def test_services_are_above_everything_but_the_test_kit() -> None:
    kit, services, *_ = CONTRACTS["Layers"]["layers"]
    assert kit == "drover.testing"
    assert {module.strip() for module in services.split(":")} == packages_of("services", 2)


def test_every_service_is_independent_and_its_core_pure() -> None:
    services = packages_of("services", 2)
    assert set(CONTRACTS["Services are independent"]["modules"]) == services
    pure = set(CONTRACTS["Cores and values are pure"]["source_modules"])
    # the gateway decides nothing, so it has no core
    assert {f"{service}.core" for service in services - {"drover_gateway"}} <= pure


@pytest.mark.parametrize(
    "module", ["grpc", "pyspark", "drover.api", "asyncio", "threading", "time", "random", "uuid"]
)
def test_a_core_may_not_import(module: str) -> None:
    assert module in CONTRACTS["Cores and values are pure"]["forbidden_modules"]


def test_spark_is_kept_out_of_all_but_the_engine_and_the_connectors() -> None:
    contract = CONTRACTS["Spark stays in the engine and the built-in connectors"]
    assert contract["forbidden_modules"] == ["pyspark"]
    kept = {name for name in contract["source_modules"] if name.startswith("drover.")}
    parts = {f"drover.{name}" for name in packages_of("shared", 2)}
    assert parts - kept <= {"drover.connectors", "drover.testing"}
