"""Which Spark settings a worker refuses, because they let other users reach its Spark session.

Spark runs the code of every client that it accepts, on the ports of the driver, the block manager
and the executors. ``spark.authenticate`` restricts them to processes of the same application.
"""

import re
from collections.abc import Iterator, Mapping

from drover_worker.engine.settings import is_local_master
from drover_worker.engine.spark_protection import (
    AUTHENTICATE,
    CIPHER,
    ENCRYPT_CONNECTIONS,
    ENCRYPT_FILES,
    OLD_ENCRYPTION,
    SAFE_CIPHER,
    SECRET,
    SECRET_FILES,
    has_secret,
    needs_given_secret,
)

_CONF = "DROVER_SPARK_CONF"
_UI = "spark.ui.enabled"
#: Other characters would end the name in Spark's file of settings.
_NAME = re.compile(r"spark\.[A-Za-z0-9._-]{1,500}")
#: Settings of authentication and encryption, and the value that each must have; None for any.
_ALLOWED: Mapping[str, str | None] = {
    AUTHENTICATE: "true",
    SECRET: None,
    **dict.fromkeys(SECRET_FILES),
    f"{AUTHENTICATE}.enableSaslEncryption": "true",
    "spark.network.sasl.serverAlwaysEncrypt": "true",
    ENCRYPT_CONNECTIONS: "true",
    OLD_ENCRYPTION: "false",
    CIPHER: SAFE_CIPHER.lower(),
    "spark.network.crypto.authEngineVersion": None,
    ENCRYPT_FILES: "true",
    "spark.io.encryption.keySizeBits": None,
    _UI: "false",
}
_PROTECTED = (
    AUTHENTICATE,
    "spark.network.crypto.",
    "spark.network.sasl.",
    "spark.io.encryption.",
    "spark.io.crypto.",
)


def spark_faults(
    conf: Mapping[str, str], master: str, *, secure: bool, plaintext_allowed: bool
) -> list[str]:
    """Why a worker must not start with these Spark settings; empty if it may.

    Args:
        conf: DROVER_SPARK_CONF.
        master: DROVER_SPARK_MASTER.
        secure: Whether the worker has an access file, so that not every caller may do everything.
        plaintext_allowed: DROVER_ALLOW_PLAINTEXT: the network is trusted.
    """
    faults = [
        f"{_CONF} must have names of settings such as spark.executor.memory, not {name[:80]!r}"
        for name in conf
        if not _NAME.fullmatch(name)
    ]
    if secure:
        faults += _weakened(conf, "on a worker with DROVER_ACCESS_FILE")
    elif not is_local_master(master) and not plaintext_allowed:
        faults += _weakened(conf, f"with DROVER_SPARK_MASTER={master}")
    if needs_given_secret(master) and not has_secret(conf) and not plaintext_allowed:
        faults.append(
            f"{_CONF} must set {SECRET}, the secret of the Spark cluster, or {SECRET_FILES[0]} for"
            f" DROVER_SPARK_MASTER={master}: otherwise any client of Spark's ports can run code on"
            " the executors and on this worker; or declare the network trusted with"
            " DROVER_ALLOW_PLAINTEXT=true"
        )
    return faults


def _weakened(conf: Mapping[str, str], because: str) -> Iterator[str]:
    for name, value in conf.items():
        if name not in _ALLOWED:
            if name.startswith(_PROTECTED):
                yield f"{_CONF} must not set {name} {because}: it may open Spark's ports; remove it"
            continue
        wanted = _ALLOWED[name]
        if wanted is None or value.strip().lower() == wanted:
            continue
        shows = "Spark's UI shows settings and plans to everyone who reaches its port"
        opens = "other users could run code through Spark's ports, or read their data"
        yield (
            f"{_CONF} must not set {name}={value} {because}: {shows if name == _UI else opens};"
            " remove it"
        )
