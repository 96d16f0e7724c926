"""Checks the properties that catalogues and tables of Iceberg send to the library."""

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from drover.connectors.lakehouse.fitted_rows import TableError
from drover.policy.client_setting_lists import Danger, Library
from drover.policy.client_settings import OverridePolicy, client_setting_faults, is_listed

#: Properties with classes that PyIceberg imports and calls.
_CODE = re.compile(r"(.*\.)?py-.*|s3\.retry-strategy-impl|auth(\..*)?")
#: Classes that catalogues name because PyIceberg has them; the location selects them anyway.
_BUILT_IN = ("pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO")
#: Properties of tables that are not for the library's access to files.
_OF_TABLES = re.compile(
    r"(write|read|commit|history|drover|schema|gc|format-version|owner|comment|created-at)\b.*"
)
_SHOWN_MAX_CHARS = 100
_log = logging.getLogger(__name__)


class ServerProperties:
    """The allow-list for properties from one catalogue; logs each dropped name once."""

    def __init__(self, catalog: str) -> None:
        self._catalog = catalog

    def checked(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The allowed ones of a server's properties.

        Raises:
            TableError: One names code, or a server that must not be called.
        """
        found = {}
        for name, value in given.items():
            shown = name[:_SHOWN_MAX_CHARS]
            if _CODE.fullmatch(name) and value not in _BUILT_IN:
                raise TableError(
                    f"the catalogue {self._catalog!r} sends the property {shown!r}, which "
                    f"{Danger.CODE}: remove it at the catalogue or the table; no setting of the "
                    "worker allows it"
                )
            if isinstance(value, bool | int | float):
                value = str(value).lower()
            if isinstance(value, str) and is_listed(Library.ICEBERG_SERVER, name):
                for _, fault in client_setting_faults(
                    Library.ICEBERG_SERVER, {name: value}, OverridePolicy.ALLOWLIST
                ):
                    raise TableError(
                        f"the property {shown!r} from the catalogue {self._catalog!r} {fault}"
                    )
                found[name] = value
            elif not _OF_TABLES.fullmatch(name):
                _note(self._catalog, shown)
        return found


@lru_cache(maxsize=1_000)
def _note(catalog: str, name: str) -> None:
    """Log a dropped property, once per process."""
    _log.info(
        "catalogue %r: the property %r from the server is ignored: servers may not set it",
        *(catalog, name),
    )
