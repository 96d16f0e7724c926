"""What a connector leaves in another system after its deletion, and how to remove it."""

from collections.abc import Mapping

from drover.model.secrets import MASK

#: The names of the change capture source, without packages.
_CAPTURE_CLASSES = {"PostgresCdcSource", "PostgresConnector"}


def statements_of(config: Mapping[str, str]) -> list[str]:
    """The statements that drop a change capture source's slot and publication; else none.

    A publication is named only if the connector created it.
    """
    class_name = config.get("connector.class", "").strip().replace(":", ".").rpartition(".")[2]
    if class_name not in _CAPTURE_CLASSES:
        return []
    # imported here: no other command needs the connectors
    from drover.connectors.postgres import settings
    from drover.connectors.postgres.remedies import identifier

    if config.get(settings.SNAPSHOT_MODE, "").strip() == settings.INITIAL_ONLY:
        return []
    slot, publication = settings.slot_name(config), settings.publication_name(config)
    statements = []
    if slot != MASK:
        quoted = slot.replace("'", "''")
        statements.append(f"SELECT pg_drop_replication_slot('{quoted}');")
    is_created = config.get(settings.AUTOCREATE, "").strip() != settings.DISABLED
    if publication != MASK and is_created:
        statements.append(f"DROP PUBLICATION {identifier(publication)};")
    return statements


def remains_text(config: Mapping[str, str], statements: list[str]) -> str:
    """The text about ``statements``, for the user who deletes the connector."""
    database = config.get("database.dbname", "")
    what = "the replication slot and the publication remain"
    if len(statements) == 1:
        what = "the replication slot remains"
    drop = "\n".join(f"  {each}" for each in statements)
    return (
        f"{config.get('name', 'the connector')}: {what} in the database {database}, which keeps "
        f"its log (WAL) for the slot; after the deletion, drop them there:\n{drop}"
    )
