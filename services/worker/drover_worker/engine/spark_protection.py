"""Spark settings that close Spark's ports and files to everyone but the application itself."""

import secrets
from collections.abc import Mapping

from drover_worker.engine.settings import is_local_master

#: Whether clients of Spark's ports need the application's secret.
AUTHENTICATE = "spark.authenticate"
SECRET = f"{AUTHENTICATE}.secret"
SECRET_FILES = (
    f"{SECRET}.file",
    f"{SECRET}.driver.file",
    f"{SECRET}.executor.file",
)
ENCRYPT_CONNECTIONS = "spark.network.crypto.enabled"
ENCRYPT_FILES = "spark.io.encryption.enabled"
CIPHER = "spark.network.crypto.cipher"
#: Spark's default cipher does not detect changed bytes.
SAFE_CIPHER = "AES/GCM/NoPadding"
OLD_ENCRYPTION = "spark.network.crypto.saslFallback"
_SECRET_BYTES = 32


def needs_given_secret(master: str) -> bool:
    """Whether the operator has to give the secret, because the master runs without the engine and
    does not generate it: a standalone cluster.
    """
    generates = master == "yarn" or master.startswith(("k8s://", "local-cluster["))
    return not is_local_master(master) and not generates


def has_secret(conf: Mapping[str, str]) -> bool:
    """Whether Spark settings contain or name the secret."""
    return any(conf.get(name) for name in (SECRET, *SECRET_FILES))


def protection(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings for an engine with the operator's settings ``conf``; none for a standalone
    cluster without a secret.
    """
    if needs_given_secret(master) and not has_secret(conf):
        return {}
    protected = {AUTHENTICATE: "true"}
    if is_local_master(master):
        return protected
    if master.startswith("local-cluster[") and not has_secret(conf):
        protected[SECRET] = secrets.token_hex(_SECRET_BYTES)
    return {
        **protected,
        ENCRYPT_CONNECTIONS: "true",
        OLD_ENCRYPTION: "false",
        CIPHER: SAFE_CIPHER,
        ENCRYPT_FILES: "true",
    }
