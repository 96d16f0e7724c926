"""Attacks through each call that takes a config, on a secure cluster."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drover.client import ConnectClient
from drover.errors import DroverError, InvalidArgumentError
from tests.support.secure_cluster import SecureCluster
from tests.support.waiting import wait_until_async

Config = Mapping[str, str]

#: Who may change what a rule allows, as messages name it.
OWNERS = (
    "administrator",
    "operator of the worker",
    "its operator",
    "of the worker",
    "the worker's",
    "never access",
    "is set by the connector",
)
TIMEOUT_S = 110
#: The calls with a config, and their names in the audit log.
CALLS = {
    "validate": "ValidateConfig",
    "create": "CreateConnector",
    "put": "PutConnectorConfig",
    "patch": "PatchConnectorConfig",
    "plan": "PlanConnectorConfig",
    "preview": "PreviewConnector",
}


@dataclass(frozen=True, slots=True)
class Attack:
    """A config, the setting that is rejected, and a part of the message that names the rule.

    With ``setting`` empty, any setting may be named.
    """

    config: Config
    setting: str = ""
    rule: str = ""
    shown: str = field(default="")

    @property
    def id(self) -> str:
        """A short name for the test's id."""
        value = self.shown or self.config.get(self.setting, "")
        return ascii(f"{self.config['connector.class']}-{self.setting}={value}")[1:-1][:100]


def given_to(base: Config, settings: Iterable[tuple[str, str]], rule: str) -> list[Attack]:
    """Attacks that add one setting each to a config."""
    return [Attack({**base, name: value}, name, rule) for name, value in settings]


async def violations(
    client: ConnectClient, call: str, config: Config, name: str = "a-x"
) -> dict[str, str]:
    """The violations by setting; empty if the call succeeds."""
    whole = {"name": name, **config}
    try:
        if call == "validate":
            response = await client.validate_config(whole, timeout_s=TIMEOUT_S)
            return {setting_of(each.field): each.description for each in response.violations}
        if call == "create":
            await client.create_connector(name, whole, timeout_s=TIMEOUT_S)
        elif call == "put":
            await client.put_connector_config(name, whole, timeout_s=TIMEOUT_S)
        elif call == "patch":
            await client.patch_connector_config(name, settings=whole, timeout_s=TIMEOUT_S)
        elif call == "plan":
            await client.plan_connector_config(name, whole, timeout_s=TIMEOUT_S)
        else:
            await client.preview_connector(whole, timeout_s=TIMEOUT_S)
    except InvalidArgumentError as error:
        return {setting_of(each.field): each.description for each in error.violations}
    return {}


def setting_of(path: str) -> str:
    """The setting that a violation's field names, such as ``config["topic"]``."""
    return path.removeprefix('config["').removesuffix('"]')


def check_rejection(attack: Attack, found: Mapping[str, str]) -> None:
    """Check that a message names the setting, the rule and who may change it."""
    assert found, "the config was accepted"
    told = [found.get(attack.setting, "")] if attack.setting else list(found.values())
    assert any(attack.rule in each for each in told), found
    assert any(owner in each for each in told for owner in OWNERS), found
    assert "Traceback" not in str(found)


async def check_audited(secure: SecureCluster, user: str, call: str, name: str = "a-x") -> None:
    """Wait until the audit log has the call of a user, which was not successful if it changes."""

    def is_there() -> bool:
        return any(
            line["call"] == CALLS[call]
            and line["principal"] == user
            and named(line["request"]) == name
            and (call == "validate" or line["outcome"] == "INVALID_ARGUMENT")
            for line in audit_lines(secure)
        )

    await wait_until_async(is_there, describe=f"{call} of {user} is in the audit log")


def named(request: Mapping[str, Any]) -> str:
    """The connector in a line's request."""
    return str(request.get("name") or request.get("config", {}).get("name", ""))


def audit_lines(secure: SecureCluster) -> list[dict[str, Any]]:
    """All lines of the audit log about calls."""
    lines = secure.audit_log.read_bytes().decode().split("\n")
    return [found for each in lines if each and "call" in (found := json.loads(each))]


async def state_of(secure: SecureCluster) -> dict[str, Any]:
    """What an attack must not change: connectors, their configs, and files."""
    async with secure.client("admin") as client:
        entries = await client.list_connectors(include_config=True, timeout_s=TIMEOUT_S)
    files = secure.cluster.directory / "files"
    return {
        "connectors": {each.name: dict(each.connector.config) for each in entries},
        "files": sorted(str(each) for each in files.rglob("*")),
    }


async def answers_of_all(
    secure: SecureCluster, user: str, call: str, attacks: Iterable[Attack]
) -> list[dict[str, str] | DroverError]:
    """The violations of each attack; the calls are made two at a time, as their caller may."""
    turns = asyncio.Semaphore(2)
    async with secure.client(user) as client:

        async def one(attack: Attack) -> dict[str, str] | DroverError:
            async with turns:
                try:
                    return await violations(client, call, attack.config)
                except DroverError as error:
                    return error

        return list(await asyncio.gather(*map(one, attacks)))
