"""Callers as messages."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.security.principal import Grant, Principal, Role


def encode_caller(principal: Principal) -> pb.GetCallerResponse:
    """A caller with its grants."""
    return pb.GetCallerResponse(
        name=principal.name,
        grants=[
            pb.CallerGrant(role=pb.Role.Value(f"ROLE_{each.role.name}"), connectors=each.connectors)
            for each in principal.grants
        ],
    )


def decode_caller(message: pb.GetCallerResponse) -> Principal:
    """A caller; a role of a later version is left out."""
    known = {each.value: each for each in Role}
    return Principal(
        message.name,
        tuple(
            Grant(known[each.role], tuple(each.connectors))
            for each in message.grants
            if each.role in known
        ),
    )
