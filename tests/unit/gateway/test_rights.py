"""What the console offers to a caller."""

from typing import Any, cast

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.caller import decode_caller, encode_caller
from drover.errors import DroverError, PermissionDeniedError, Reason, UnavailableError
from drover.rpc.roles import ACCESS
from drover.security.principal import Grant, Principal, Role
from drover_gateway.console import rights
from drover_gateway.console.rights import Rights, RightsOfCallers, role_of
from drover_gateway.identity.credentials import Caller
from drover_gateway.workers import CONNECT_SERVICE, Workers

ANN = Caller("ann", "ann")
OPERATOR = Rights(Principal("ben", (Grant(Role.OPERATOR),)))
OF_SOME = Rights(Principal("cat", (Grant(Role.ADMIN, ("a-*",)), Grant(Role.VIEWER))))


def test_a_role_is_offered_what_the_workers_allow() -> None:
    assert OPERATOR.may("PauseConnector", "a")
    assert not OPERATOR.may("DeleteConnector", "a")
    assert OPERATOR.may("ReloadPlugins")
    assert not OPERATOR.may_for_some("CreateConnector")
    with pytest.raises(PermissionDeniedError) as caught:
        OPERATOR.demand("DeleteConnector", "a")
    assert caught.value.message.startswith(
        "DeleteConnector needs the role admin for connector 'a', which 'ben' does not have"
    )
    assert role_of("DeleteConnector") == "admin"


def test_a_grant_for_some_connectors_offers_nothing_for_others_or_the_cluster() -> None:
    assert OF_SOME.may("DeleteConnector", "a-1")
    assert not OF_SOME.may("DeleteConnector", "b-1")
    assert not OF_SOME.may("DeleteConnector")
    assert OF_SOME.may_for_some("DeleteConnector")
    assert not OF_SOME.may("DrainWorker")
    assert not OF_SOME.may_for_some("DrainWorker")
    with pytest.raises(PermissionDeniedError):
        OF_SOME.demand_for_some("DrainWorker")
    OF_SOME.demand_for_some("CreateConnector")


def test_who_has_no_grant_is_offered_nothing_and_unknown_rights_offer_everything() -> None:
    nobody, unknown = Rights(Principal("dan", ())), Rights()
    for rpc in ACCESS[CONNECT_SERVICE]:
        assert not nobody.may(rpc, "a")
        assert not nobody.may_for_some(rpc)
        assert unknown.may(rpc, "a")
        unknown.demand(rpc, "a")


def test_a_caller_is_read_back_without_roles_of_later_versions() -> None:
    principal = Principal("ann", tuple(Grant(each, ("a-*", "b")) for each in Role))
    sent = encode_caller(principal)
    assert decode_caller(sent) == principal
    sent.grants.append(pb.CallerGrant(role=cast("Any", 99)))
    sent.grants.append(pb.CallerGrant())
    assert decode_caller(sent) == principal


class _Answers:
    """Answers GetCaller with what is set."""

    def __init__(self) -> None:
        self.answer: Principal | DroverError = UnavailableError(Reason.DRAINING, "no")
        self.count = 0

    def client(self, caller: Caller) -> "_Answers":
        return self

    async def get_caller(self, *, timeout_s: float) -> pb.GetCallerResponse:
        self.count += 1
        if isinstance(self.answer, DroverError):
            raise self.answer
        return encode_caller(self.answer)


async def test_rights_are_kept_and_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = _Answers()
    of_callers = RightsOfCallers(cast("Workers", answers))
    assert await of_callers.of(ANN) == Rights()
    monkeypatch.setattr(rights, "KEPT_S", 0.0)
    answers.answer = Principal("ann", (Grant(Role.VIEWER),))
    known = await of_callers.of(ANN)
    assert known == Rights(answers.answer)
    monkeypatch.setattr(rights, "KEPT_S", 1e6)
    count = answers.count
    assert await of_callers.of(ANN) == known
    assert answers.count == count
    # another token is another caller
    assert await of_callers.of(Caller("ben", "ann")) == known
    assert answers.count == count + 1
    # while no worker answers, the last known ones count
    monkeypatch.setattr(rights, "KEPT_S", 0.0)
    answers.answer = UnavailableError(Reason.DRAINING, "no")
    assert await of_callers.of(ANN) == known
    answers.answer = PermissionDeniedError(Reason.MISSING_ROLE, "no grant")
    assert not (await of_callers.of(ANN)).may_for_some("ListConnectors")


async def test_rights_of_many_callers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "_CALLERS_MAX", 2)
    answers = _Answers()
    of_callers = RightsOfCallers(cast("Workers", answers))
    for each in ("a", "b", "c", "c", "a"):
        await of_callers.of(Caller(each, each))
    assert answers.count == 4
