"""The reasons of drover.errors equal those in the contract, with the same status codes."""

import re

from drover.errors import DroverError, Reason
from tests.support.descriptors import elements

PREFIX = "ERROR_REASON_"


def contract_reasons() -> dict[str, str]:
    """Every reason with its comment."""
    return {
        element.name.rpartition(".")[2].removeprefix(PREFIX): element.comment
        for element in elements()
        if element.kind == "value" and ".ErrorReason." in element.name
    }


def test_reason_equals_error_reason() -> None:
    assert {reason.value for reason in Reason} == set(contract_reasons()) - {"UNSPECIFIED"}


def test_names_and_values_are_the_same() -> None:
    assert all(reason.name == reason.value for reason in Reason)


def test_every_reason_names_a_code_of_the_error_tree() -> None:
    codes = {cls.code for cls in DroverError.__subclasses__()}
    for name, comment in contract_reasons().items():
        if name != "UNSPECIFIED":
            code = re.match(r"[A-Z_]+(?=:)", comment)
            assert code, f"{name} does not start with its code"
            assert code.group() in codes, f"{name}: {code.group()}"
