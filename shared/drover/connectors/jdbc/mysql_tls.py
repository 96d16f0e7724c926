"""How connections to MySQL and MariaDB are encrypted, and whom they trust."""

import ssl
from collections.abc import Mapping
from typing import Any

_MODE, _USE, _CA, _CERT, _KEY = "sslMode", "useSSL", "ssl_ca", "ssl_cert", "ssl_key"
#: Parameters of URLs, by what they are called here; one of them is of MariaDB's own JDBC driver.
PARAMETERS: Mapping[str, str] = {
    **{name: name for name in (_MODE, _USE, _CA, _CERT, _KEY)},
    "serverSslCert": _CA,
}
_DISABLED, _PREFERRED, _REQUIRED = "disabled", "preferred", "required"
_VERIFY_CA, _VERIFY_IDENTITY = "verify_ca", "verify_identity"
_NAMES = (_DISABLED, _PREFERRED, _REQUIRED, _VERIFY_CA, _VERIFY_IDENTITY)
#: What MySQL's JDBC driver calls them, and what MariaDB's does.
_MODES = {
    **{name: name for name in _NAMES},
    "disable": _DISABLED,
    "trust": _REQUIRED,
    "verify_full": _VERIFY_IDENTITY,
}


def options_fault(options: Mapping[str, str]) -> str | None:
    """What is wrong with the parameters of a URL; None if nothing is."""
    if _mode(options) is None:
        return f"{_MODE} must be one of {', '.join(_NAMES).upper()}"
    if _KEY in options and _CERT not in options:
        return f"{_KEY} needs {_CERT}: the certificate that the key is of"
    return None


def driver_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """What PyMySQL is told: by itself it encrypts where the server does, and trusts anyone.

    Raises:
        ValueError: a file is not there, or is none of certificates or keys.
    """
    mode = _mode(options)
    if mode == _DISABLED:
        return {"ssl_disabled": True}
    if mode == _PREFERRED:
        return {}
    try:
        context = ssl.create_default_context(cafile=options.get(_CA))
        if _CERT in options:
            context.load_cert_chain(options[_CERT], options.get(_KEY), password="")
    except OSError as error:
        named = ", ".join(options[name] for name in (_CA, _CERT, _KEY) if name in options)
        told = error.strerror or type(error).__name__
        raise ValueError(f"the files of TLS cannot be used, {named}: {told}") from None
    # certificates that MySQL makes for itself are not as strict as newer Pythons want them
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if mode != _VERIFY_IDENTITY:
        context.check_hostname = False
    if mode == _REQUIRED:
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def _mode(options: Mapping[str, str]) -> str | None:
    """None for one that nobody knows."""
    asked = options.get(_MODE)
    if asked is not None:
        return _MODES.get(asked.lower().replace("-", "_"))
    if _CA in options:
        return _VERIFY_IDENTITY
    if _CERT in options:
        return _REQUIRED
    return _DISABLED if options.get(_USE, "").lower() == "false" else _PREFERRED
