"""Which errors mean a missing right, and MySQL's statement that grants it."""

from typing import TYPE_CHECKING

from drover.connectors.jdbc.database import reason_of

if TYPE_CHECKING:
    import sqlalchemy as sa

#: How long a check of rights waits for locks of MySQL's metadata.
LOCK_WAIT_S = 3


def is_denied(error: "sa.exc.DBAPIError") -> bool:
    """Whether the user lacks a right."""
    return " denied " in reason_of(error)


def mysql_grant(
    connection: "sa.Connection", rights: str, name: str, *, is_qualified: bool = True
) -> str:
    """The statement that grants rights on a quoted name; of the present database unless it is
    qualified.
    """
    user = str(connection.exec_driver_sql("SELECT current_user()").scalar_one())
    own, _, host = user.rpartition("@")
    target = name if is_qualified else f"{_database(connection)}.{name}"
    return f"GRANT {rights} ON {target} TO '{own}'@'{host}'"


def _database(connection: "sa.Connection") -> str:
    """The quoted name of the present database."""
    name = str(connection.exec_driver_sql("SELECT database()").scalar_one())
    return connection.dialect.identifier_preparer.quote(name).replace("%%", "%")
