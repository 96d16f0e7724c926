"""The calls of ConnectService that pages show as command lines."""

import json
import shlex
from collections.abc import Mapping


def grpc_command(rpc: str, body: Mapping[str, object] | None = None) -> str:
    """The command that calls a method of ConnectService, without the client's options."""
    text = shlex.quote(json.dumps(body or {}, ensure_ascii=False))
    return f"grpcurl -d {text} WORKER drover.api.connect.v1.ConnectService/{rpc}"
