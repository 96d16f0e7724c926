"""Which Spark settings a worker refuses, because they let other users reach its Spark session.

Spark runs the code of every client that it accepts, on the ports of the driver, the block manager
and the executors. ``spark.authenticate`` restricts them to processes of the same application. Spark
generates the secret itself for a local master.
"""

from collections.abc import Iterator, Mapping

from drover_worker.engine.settings import AUTHENTICATE, is_local_master

_CONF = "DROVER_SPARK_CONF"
_UI = "spark.ui.enabled"
#: Encryption of connections, and of the files in which executors keep blocks.
_ENCRYPTION = (
    "spark.authenticate.enableSaslEncryption",
    "spark.io.encryption.enabled",
    "spark.network.crypto.enabled",
    "spark.network.sasl.serverAlwaysEncrypt",
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
    faults = list(_weakened(conf)) if secure else []
    authenticates = _is(conf, AUTHENTICATE, "true")
    if not is_local_master(master) and not authenticates and not plaintext_allowed:
        faults.append(
            f"{_CONF} must set {AUTHENTICATE}=true and {AUTHENTICATE}.secret for"
            f" DROVER_SPARK_MASTER={master}: otherwise any client of Spark's ports can run code on"
            " the executors and on this worker; or declare the network trusted with"
            " DROVER_ALLOW_PLAINTEXT=true"
        )
    return faults


def _weakened(conf: Mapping[str, str]) -> Iterator[str]:
    because = "on a worker with DROVER_ACCESS_FILE"
    if AUTHENTICATE in conf and not _is(conf, AUTHENTICATE, "true"):
        yield (
            f"{_CONF} must not set {AUTHENTICATE}={conf[AUTHENTICATE]} {because}: every user of"
            " this machine could run code through Spark's ports; remove it"
        )
    if _UI in conf and not _is(conf, _UI, "false"):
        yield (
            f"{_CONF} must not set {_UI}={conf[_UI]} {because}: Spark's UI shows settings and plans"
            " to everyone who reaches its port; remove it"
        )
    for name in _ENCRYPTION:
        if name in conf and not _is(conf, name, "true"):
            yield f"{_CONF} must not set {name}={conf[name]} {because}: remove it"


def _is(conf: Mapping[str, str], name: str, value: str) -> bool:
    return conf.get(name, "").strip().lower() == value
