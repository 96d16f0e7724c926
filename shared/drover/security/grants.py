"""The access file: the roles of certificates, tokens and users."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.security.principal import Grant, Principal, Role
from drover.security.renewed import Renewed

GRANTS_MAX = 10_000

_Name = Annotated[str, Field(min_length=1, max_length=255)]


class _Entry(BaseModel):
    """One grant in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    connectors: tuple[_Name, ...] = ()
    certificate: _Name | None = None
    token_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    name: _Name | None = None
    subject: _Name | None = None
    group: _Name | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        try:
            return Role[str(value).upper()]
        except KeyError:
            names = ", ".join(role.name.lower() for role in Role)
            raise ValueError(f"must be one of {names}") from None

    @field_validator("connectors", mode="before")
    @classmethod
    def _not_empty(cls, value: object) -> object:
        # without this rule an empty list would grant the role for the whole cluster
        if value is None or value == []:
            raise ValueError(
                'must name a connector, or "*" for all: leave it out to grant the role for the'
                " whole cluster"
            )
        return value

    @model_validator(mode="after")
    def _one_holder(self) -> Self:
        holders = (self.certificate, self.token_sha256, self.subject, self.group)
        if sum(holder is not None for holder in holders) != 1:
            raise ValueError("must have one of certificate, token_sha256, subject, group")
        if (self.name is None) != (self.token_sha256 is None):
            raise ValueError(
                "name and token_sha256 must be set together: the name identifies the token in logs"
                " and histories"
            )
        if self.role is Role.INTERNAL and self.connectors:
            raise ValueError("the role internal must not be limited to connectors")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    grants: Annotated[tuple[_Entry, ...], Field(max_length=GRANTS_MAX)]


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of the access file, by holder."""

    certificates: dict[str, tuple[Grant, ...]]
    tokens: dict[str, Principal]
    subjects: dict[str, tuple[Grant, ...]]
    groups: dict[str, tuple[Grant, ...]]

    def of_certificate(self, names: Sequence[str], *, of_user: bool = False) -> Principal | None:
        """The principal of a certificate with these names; None if no grant has one of them.

        Args:
            names: The certificate's names.
            of_user: Whether the authority of users has signed it. Then grants of names that have
                the role internal do not apply.
        """
        granted = [
            name
            for name in names
            if name in self.certificates
            and not (of_user and any(g.role is Role.INTERNAL for g in self.certificates[name]))
        ]
        if not granted:
            return None
        return Principal(granted[0], tuple(g for name in granted for g in self.certificates[name]))

    def of_token(self, token: str) -> Principal | None:
        """The principal of a static token; None if no grant has it."""
        return self.tokens.get(token_sha256(token))

    def of_user(self, subject: str, groups: Iterable[str]) -> Principal:
        """The principal of a JWT's subject, with the grants of the subject and its groups."""
        grants = list(self.subjects.get(subject, ()))
        for group in groups:
            grants += self.groups.get(group, ())
        return Principal(subject, tuple(grants))


def token_sha256(token: str) -> str:
    """The hash of a token for the access file."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def renewed_grants(path: str) -> Renewed[Grants]:
    """The grants in the file, reloaded when it changes.

    Raises:
        InvalidArgumentError: As ``read_grants``.
    """
    return Renewed("access file", [path], lambda: read_grants(path))


def read_grants(path: str) -> Grants:
    """Read an access file.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with one violation for each fault.
    """
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError):
        raise _unusable(f"{path} is not valid YAML") from None
    try:
        entries = _File.model_validate(document).grants
    except ValidationError as error:
        raise InvalidArgumentError.listing(
            [_violation(path, fault) for fault in error.errors(include_url=False)],
            reason=Reason.INVALID_CONFIG,
        ) from None
    certificates: dict[str, tuple[Grant, ...]] = {}
    subjects: dict[str, tuple[Grant, ...]] = {}
    groups: dict[str, tuple[Grant, ...]] = {}
    tokens: dict[str, Principal] = {}
    for entry in entries:
        grant = Grant(entry.role, entry.connectors)
        for table, key in (
            (certificates, entry.certificate),
            (subjects, entry.subject),
            (groups, entry.group),
        ):
            if key is not None:
                table[key] = (*table.get(key, ()), grant)
        if entry.token_sha256 is not None and entry.name is not None:
            earlier = tokens.get(entry.token_sha256)
            grants = earlier.grants if earlier else ()
            tokens[entry.token_sha256] = Principal(entry.name, (*grants, grant))
    return Grants(certificates, tokens, subjects, groups)


def _violation(path: str, fault: object) -> Violation:
    assert isinstance(fault, dict)
    field = ".".join(str(part) for part in fault["loc"])
    text = " ".join(str(fault["msg"]).split()).removeprefix("Value error, ")
    return Violation(f"{path}: {field}" if field else path, text)


def _unusable(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(Reason.INVALID_CONFIG, text)
