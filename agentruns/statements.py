"""The statements that every request and every run takes, as SQL.

Putting one together takes Django several times as long as the database needs to run it, and Django
knows no UPDATE that returns what it changed. Everything else is the ORM's. The tests of keys,
claiming, appending and finishing run these on both databases.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection

from agentruns.models.runs import Run, RunEvent, RunStatus
from agentruns.models.steering import ApiKey

# The database's clock.
_NOW = {
    "postgresql": "STATEMENT_TIMESTAMP()",
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')",
}
# The same, plus a lease.
_LATER = {
    "postgresql": "STATEMENT_TIMESTAMP() + %s",
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s)",
}
# In one INSERT; SQLite takes 999 values.
_EVENTS_AT_ONCE = 190


def claim(run_id: UUID, *, lease: timedelta, now: datetime, returning: Sequence[str]) -> Run | None:
    """Make a queued run running, with the next attempt; return it with the columns asked for."""
    sql = (
        "UPDATE agentruns_run SET status = %s, attempt = attempt + 1, "  # noqa: S608 -- no value in it
        f"lease_expires_at = {_LATER[connection.vendor]}, started_at = %s, updated_at = %s "
        "WHERE id = %s AND status = %s"
    )
    moment = connection.ops.adapt_datetimefield_value(now)
    values = [RunStatus.RUNNING.value, _after(lease), moment, moment]
    values += [_id(run_id), RunStatus.QUEUED.value]
    if connection.features.can_return_columns_from_insert:
        sql += f" RETURNING id, {', '.join(returning)}"
        return next(iter(list(Run.objects.raw(sql, values))), None)
    # SQLite before 3.35.
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        taken = cursor.rowcount
    return Run.objects.only(*returning).get(id=run_id) if taken else None


def change_held(
    run_id: UUID, attempt: int, *, lease: timedelta | None, changes: Mapping[str, Any]
) -> int:
    """Change a run that this attempt holds; return how many rows that were: one, or none.

    `changes` are values by column. `lease`: how long it is held from now on; None ends it.
    """
    columns = [f"{column} = %s" for column in changes]
    columns.append(f"lease_expires_at = {_LATER[connection.vendor] if lease else '%s'}")
    sql = (
        f"UPDATE agentruns_run SET {', '.join(columns)} "  # noqa: S608 -- columns, no values
        "WHERE id = %s AND status = %s AND attempt = %s"
    )
    values = [_stored(column, value) for column, value in changes.items()]
    values.append(_after(lease) if lease else None)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*values, _id(run_id), RunStatus.RUNNING.value, attempt])
        return int(cursor.rowcount)


def add_events(run_id: UUID, rows: Sequence[tuple[int, str, str, datetime]]) -> None:
    """Add events of a run, each given as position, type, data and moment."""
    run = _id(run_id)
    adapt = connection.ops.adapt_datetimefield_value
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _EVENTS_AT_ONCE):
            part = rows[start : start + _EVENTS_AT_ONCE]
            places = ", ".join(["(%s, %s, %s, %s, %s)"] * len(part))
            cursor.execute(
                "INSERT INTO agentruns_runevent (run_id, position, type, data, created_at) "  # noqa: S608
                f"VALUES {places}",
                [value for *row, at in part for value in (run, *row, adapt(at))],
            )


def events_after(run_id: UUID, position: int, limit: int) -> list[RunEvent]:
    """Return up to `limit` of the run's events behind a position, in order."""
    sql = (
        "SELECT id, run_id, position, type, data, created_at FROM agentruns_runevent "
        "WHERE run_id = %s AND position > %s ORDER BY position LIMIT %s"
    )
    return list(RunEvent.objects.raw(sql, [_id(run_id), position, limit]))


def living_key(digest: str) -> ApiKey | None:
    """Return the key of this digest that opens anything now: not revoked, in time, of somebody
    active. Its owner and policy are looked up when asked for."""
    users = get_user_model()
    columns = ", ".join(f"k.{field.column}" for field in ApiKey._meta.concrete_fields)
    sql = (
        f"SELECT {columns} FROM {ApiKey._meta.db_table} k "  # noqa: S608 -- names, no values
        f"JOIN {users._meta.db_table} u ON u.{users._meta.pk.column} = k.owner_id "
        "WHERE k.digest = %s AND k.revoked_at IS NULL AND u.is_active "
        f"AND (k.expires_at IS NULL OR k.expires_at > {_NOW[connection.vendor]})"
    )
    return next(iter(list(ApiKey.objects.raw(sql, [digest]))), None)


def made_by(run_id: UUID, key_id: int) -> bool | None:
    """Whether the key made the run; None where there is no such run."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key_id FROM agentruns_run WHERE id = %s", [_id(run_id)])
        row = cursor.fetchone()
    return None if row is None else row[0] == key_id


def _id(run_id: UUID) -> Any:
    return _stored("id", run_id)


def _stored(column: str, value: Any) -> Any:
    return Run._meta.get_field(column).get_db_prep_save(value, connection)  # type: ignore[union-attr]


def _after(time: timedelta) -> Any:
    if connection.vendor == "sqlite":
        return f"+{time.total_seconds():.3f} seconds"
    return time
