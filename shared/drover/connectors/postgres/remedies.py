"""Remedies for errors of a server: the statement or setting that permits the refused operation."""

import re

#: SQLSTATE of a full disk, and the remedy.
NO_ROOM_STATE, MAKE_ROOM = "53100", "make room on the server's disk"
#: SQLSTATEs of a missing privilege, of a limit of the server's settings, and of a wrong one.
NO_PRIVILEGE, LIMIT_REACHED, WRONG_STATE = "42501", "53400", "55000"
#: Names that must be quoted although they have no special characters.
_RESERVED = re.compile(
    "all|analy[sz]e|and|any|array|as|asc|both|case|cast|check|collate|column|constraint|create|"
    "default|desc|distinct|do|else|end|except|false|fetch|for|foreign|from|grant|group|having|in|"
    "initially|intersect|into|leading|limit|not|null|offset|on|only|or|order|placing|primary|"
    "references|returning|select|some|symmetric|table|then|to|trailing|true|union|unique|user|"
    "using|when|where|window|with"
)
_PLAIN = re.compile("[a-z_][a-z0-9_]*")
#: What the server says when it refuses a session. These errors have no SQLSTATE in libpq.
_SESSION_REMEDIES = (
    (r"permission denied for database", "GRANT CONNECT ON DATABASE {database} TO {user}"),
    (r"is not permitted to log in", "ALTER ROLE {user} LOGIN"),
    (r"too many connections for role", "ALTER ROLE {user} CONNECTION LIMIT -1"),
    (r"too many connections for database", "ALTER DATABASE {database} CONNECTION LIMIT -1"),
    (r"to start (walsender|WAL sender)", "ALTER ROLE {user} REPLICATION"),
    (r"max_wal_senders", "raise max_wal_senders and restart the server, or end other readers"),
    (
        r"(connection slots are reserved|too many clients)",
        "raise max_connections and restart the server, or end other sessions",
    ),
    (
        r"no pg_hba\.conf entry.*no encryption",
        "set database.sslmode=require, or add an entry to the server's pg_hba.conf",
    ),
    (r"(no pg_hba\.conf entry|pg_hba\.conf rejects)", "change the server's pg_hba.conf"),
)


def identifier(*names: str) -> str:
    """A qualified name in a statement, in double quotes where they are needed."""
    return ".".join(
        name
        if _PLAIN.fullmatch(name) and not _RESERVED.fullmatch(name)
        else '"' + name.replace('"', '""') + '"'
        for name in names
    )


def session_remedy(message: str, user: str, database: str) -> str | None:
    """The remedy for a session that the server refuses; None if none is known."""
    for pattern, remedy in _SESSION_REMEDIES:
        if re.search(pattern, message):
            return remedy.format(user=identifier(user), database=identifier(database))
    return None


def with_remedy(message: str, remedy: str | None) -> str:
    """A message with its remedy, if there is one."""
    return f"{message}; {remedy}" if remedy else message


_DENIED = re.compile(r"permission denied for (table|view|schema|sequence|function) (\S+)")
_OBJECT_GRANTS = {
    "schema": "USAGE ON SCHEMA",
    "sequence": "USAGE ON SEQUENCE",
    "function": "EXECUTE ON FUNCTION",
}


def statement_fault(sqlstate: str | None, message: str, statement: str, user: str) -> str:
    """The server's message about a statement, with the privileges that the statement needs."""
    denied = _DENIED.search(message) if sqlstate == NO_PRIVILEGE else None
    if denied is None:
        return message
    kind, name = denied.groups()
    granted = _OBJECT_GRANTS.get(kind)
    if granted is None:
        words = set(re.findall(r"[a-z]+", statement.lower()))
        changes = [each for each in ("insert", "update", "delete") if each in words]
        reads = changes != ["insert"]
        granted = ", ".join(["SELECT"] * reads + [each.upper() for each in changes]) + " ON"
    return f"{message}; GRANT {granted} {name} TO {identifier(user)}"
