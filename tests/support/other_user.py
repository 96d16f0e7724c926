"""What another user of this machine can do with files and ports.

This module also runs as a script, which imports what it needs, becomes that user, and then tries.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures.thread import ThreadPoolExecutor
from pathlib import Path
from typing import Any

OTHER_ID = 65_534
_ANSWER_TIMEOUT_S = 3.0
_ANSWER_MAX_BYTES = 4096


def readable_files(paths: Iterable[Path]) -> list[str]:
    """The files and directories of ``paths`` that another user can open or list."""
    found: list[str] = _as_other_user({"paths": [str(path) for path in paths]})
    return found


def answers(requests: Mapping[int, bytes], *, tls: bool = False) -> dict[int, bytes]:
    """What each port on loopback answers to a request of another user; empty for nothing.

    Over TLS the client has no certificate and does not check the server's.
    """
    told = {str(port): request.hex() for port, request in requests.items()}
    given: dict[str, str] = _as_other_user({"requests": told, "tls": tls})
    return {int(port): bytes.fromhex(answer) for port, answer in given.items()}


def called_as_other_user(function: Callable[[], Any]) -> Any:
    """The result of a function in a fork of this process that runs as another user, through JSON.

    Modules that it needs must be imported already: the other user cannot read their files.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "null"
        try:
            os.setgroups([])
            os.setgid(OTHER_ID)
            os.setuid(OTHER_ID)
            answer = json.dumps(function())
        except Exception:  # noqa: BLE001 - the caller's function may raise anything
            traceback.print_exc()
        finally:
            os.write(writer, answer.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as result:
        answered = json.load(result)
    os.waitpid(child, 0)
    return answered


def _as_other_user(task: Mapping[str, Any]) -> Any:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", __file__],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _main() -> None:
    task = json.load(sys.stdin)
    os.setgroups([])
    os.setgid(OTHER_ID)
    os.setuid(OTHER_ID)
    if "paths" in task:
        result: Any = [path for path in task["paths"] if _opens(path)]
    else:
        requests = task["requests"]
        with ThreadPoolExecutor(len(requests)) as pool:
            found = pool.map(lambda port: _answer(int(port), requests[port], task["tls"]), requests)
            result = dict(zip(requests, found, strict=True))
    json.dump(result, sys.stdout)


def _opens(path: str) -> bool:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK))
        except OSError:
            continue
        return True
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def _answer(port: int, request: str, tls: bool) -> str:
    answer = b""
    try:
        # create_connection would import a codec, which this user cannot read
        with socket.socket() as plain:
            plain.settimeout(_ANSWER_TIMEOUT_S)
            plain.connect(("127.0.0.1", port))
            stream = _over_tls(plain) if tls else plain
            stream.sendall(bytes.fromhex(request))
            while len(answer) < _ANSWER_MAX_BYTES and (part := stream.recv(_ANSWER_MAX_BYTES)):
                answer += part
    except OSError:  # closed, or no further answer
        pass
    return answer.hex()


def _over_tls(plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)


if __name__ == "__main__":
    _main()
