from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from drover.errors import InvalidArgumentError
from drover.security import renewed
from drover.security.grants import Grants, read_grants, renewed_grants, token_sha256
from drover.security.principal import Principal, Role

TOKEN = "ci-" + "x" * 40


def granted(tmp_path: Path, *grants: Mapping[str, object]) -> Grants:
    path = tmp_path / "access.yaml"
    path.write_text(yaml.safe_dump({"grants": [dict(grant) for grant in grants]}))
    return read_grants(str(path))


def test_grants_of_one_holder_add_up(tmp_path: Path) -> None:
    grants = granted(
        tmp_path,
        {"certificate": "ann", "role": "viewer"},
        {"certificate": "ann", "role": "admin", "connectors": ["orders-*"]},
    )
    ann = grants.of_certificate(["ann.example.com", "ann"])
    assert ann is not None
    assert ann.name == "ann"
    assert ann.may(Role.ADMIN, "orders-1")
    assert not ann.may(Role.OPERATOR, "order")
    assert ann.may(Role.VIEWER, "order")
    assert ann.may(Role.VIEWER)
    assert not ann.may(Role.OPERATOR), "the cluster is no connector"
    assert ann.may_for_some(Role.ADMIN)
    assert not ann.may_for_some(Role.INTERNAL)
    assert grants.of_certificate(["bob"]) is None


def test_a_role_includes_those_before_it(tmp_path: Path) -> None:
    grants = granted(tmp_path, {"certificate": "worker", "role": "internal"})
    worker = grants.of_certificate(["worker"])
    assert worker is not None
    assert all(worker.may(role) and worker.may(role, "any") for role in Role)


def test_patterns_tell_upper_from_lower_case(tmp_path: Path) -> None:
    grants = granted(tmp_path, {"subject": "ann", "role": "admin", "connectors": ["a?", "[b]"]})
    ann = grants.of_user("ann", [])
    assert [ann.may(Role.VIEWER, name) for name in ("ab", "A1", "abc", "b")] == [
        *(True, False, False, True)
    ]


def test_a_star_covers_all_connectors_but_not_the_cluster(tmp_path: Path) -> None:
    grants = granted(tmp_path, {"subject": "ann", "role": "admin", "connectors": ["*"]})
    ann = grants.of_user("ann", [])
    assert ann.may(Role.ADMIN, "any")
    assert not ann.may(Role.VIEWER)


def test_a_token_is_known_by_its_digest(tmp_path: Path) -> None:
    grants = granted(
        tmp_path,
        {"token_sha256": token_sha256(TOKEN), "name": "ci", "role": "operator"},
        {"token_sha256": token_sha256(TOKEN), "name": "ci", "role": "admin", "connectors": ["x"]},
    )
    ci = grants.of_token(TOKEN)
    assert ci is not None
    assert ci.name == "ci"
    assert ci.may(Role.ADMIN, "x")
    assert grants.of_token(TOKEN + "x") is None
    assert grants.of_token("\udcff") is None


def test_a_user_has_the_grants_of_its_groups(tmp_path: Path) -> None:
    grants = granted(
        tmp_path,
        {"group": "data", "role": "operator"},
        {"subject": "ann", "role": "viewer"},
    )
    assert grants.of_user("ann", ["data", "other"]).may(Role.OPERATOR)
    assert grants.of_user("ann", []).may(Role.VIEWER)
    assert not grants.of_user("ann", []).may(Role.OPERATOR)
    assert grants.of_user("bob", ["x"]) == Principal("bob", ())


@pytest.mark.parametrize(
    ("grant", "fault"),
    [
        ({"certificate": "a", "role": "boss"}, "must be one of viewer, operator, admin, internal"),
        ({"certificate": "a"}, "Field required"),
        ({"role": "admin"}, "must have one of certificate, token_sha256, subject, group"),
        ({"role": "admin", "certificate": "a", "group": "b"}, "must have one of certificate"),
        ({"role": "admin", "token_sha256": "abc", "name": "ci"}, "String should match pattern"),
        ({"role": "admin", "token_sha256": "0" * 64}, "name and token_sha256 must be set together"),
        (
            {"role": "admin", "group": "g", "name": "ci"},
            "name and token_sha256 must be set together",
        ),
        ({"role": "admin", "group": "g", "conectors": ["a"]}, "Extra inputs are not permitted"),
        ({"role": "internal", "certificate": "a", "connectors": ["b"]}, "must not be limited"),
        ({"role": "admin", "certificate": "a", "connectors": []}, "must name a connector"),
        ({"role": "admin", "certificate": "a", "connectors": None}, "must name a connector"),
    ],
)
def test_a_fault_is_told_with_its_place(
    tmp_path: Path, grant: dict[str, object], fault: str
) -> None:
    good = {"certificate": "ok", "role": "viewer"}
    with pytest.raises(InvalidArgumentError) as caught:
        granted(tmp_path, good, grant, {"role": 3})
    assert len(caught.value.violations) == 2, "every fault at once"
    first = caught.value.violations[0]
    assert first.field.startswith(f"{tmp_path}/access.yaml: grants.1")
    assert fault in first.description


@pytest.mark.parametrize("text", ["", "[]", "grants: 3", "grants: [x]", "{", "a: b"])
def test_what_is_no_access_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"access\.yaml"):
        read_grants(str(path))


def test_a_missing_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"gone\.yaml cannot be read: No such file"):
        read_grants(str(tmp_path / "gone.yaml"))


def test_what_is_taken_out_is_revoked_and_a_broken_file_revokes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    ci = {"token_sha256": token_sha256(TOKEN), "name": "ci", "role": "operator"}
    granted(tmp_path, ci)
    grants = renewed_grants(str(tmp_path / "access.yaml"))
    assert grants.present().of_token(TOKEN)
    (tmp_path / "access.yaml").write_text("grants: [{role: nobody}]")
    assert grants.present().of_token(TOKEN)
    granted(tmp_path)
    assert grants.present().of_token(TOKEN) is None
