"""TLS of connections to MySQL and MariaDB."""

import ssl
from collections.abc import Mapping
from typing import Any

from drover.policy.files import directory_fault

_MODE, _USE, _CA, _CERT, _KEY = "sslMode", "useSSL", "ssl_ca", "ssl_cert", "ssl_key"
#: TLS parameters of URLs, with their names here; one is from MariaDB's own JDBC driver.
PARAMETERS: Mapping[str, str] = {
    **{name: name for name in (_MODE, _USE, _CA, _CERT, _KEY)},
    "serverSslCert": _CA,
}
_DISABLED, _PREFERRED, _REQUIRED = "disabled", "preferred", "required"
_VERIFY_CA, _VERIFY_IDENTITY = "verify_ca", "verify_identity"
_NAMES = (_DISABLED, _PREFERRED, _REQUIRED, _VERIFY_CA, _VERIFY_IDENTITY)
#: The mode names of MySQL's and MariaDB's JDBC drivers.
_MODES = {
    **{name: name for name in _NAMES},
    "disable": _DISABLED,
    "trust": _REQUIRED,
    "verify_full": _VERIFY_IDENTITY,
}


def options_fault(options: Mapping[str, str]) -> str | None:
    """The error in the parameters of a URL, or None."""
    if _mode(options) is None:
        return f"{_MODE} must be one of {', '.join(_NAMES).upper()}"
    if _KEY in options and _CERT not in options:
        return f"{_KEY} needs {_CERT}, the certificate for that key"
    return None


def driver_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """The TLS arguments for PyMySQL, which by default encrypts if the server does, without
    verification.

    Raises:
        ValueError: A file is missing, or has no certificates or keys.
    """
    mode = _mode(options)
    if mode == _DISABLED:
        return {"ssl_disabled": True}
    if mode == _PREFERRED:
        return {}
    for path in (options[each] for each in (_CA, _CERT, _KEY) if each in options):
        fault = directory_fault(path)
        if fault is not None:
            raise ValueError(f"the TLS files cannot be used: {path} {fault}")
    try:
        context = ssl.create_default_context(cafile=options.get(_CA))
        if _CERT in options:
            context.load_cert_chain(options[_CERT], options.get(_KEY), password="")
    except OSError as error:
        named = ", ".join(options[name] for name in (_CA, _CERT, _KEY) if name in options)
        told = error.strerror or type(error).__name__
        raise ValueError(f"the TLS files cannot be used, {named}: {told}") from None
    # MySQL's self-generated certificates do not meet the strict checks of recent Python versions
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if mode != _VERIFY_IDENTITY:
        context.check_hostname = False
    if mode == _REQUIRED:
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def _mode(options: Mapping[str, str]) -> str | None:
    """The TLS mode of a URL; None for an unknown one."""
    asked = options.get(_MODE)
    if asked is not None:
        return _MODES.get(asked.lower().replace("-", "_"))
    if _CA in options:
        return _VERIFY_IDENTITY
    if _CERT in options:
        return _REQUIRED
    return _DISABLED if options.get(_USE, "").lower() == "false" else _PREFERRED
