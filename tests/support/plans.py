"""How the database means to read what a page asks for."""

from typing import Any

from django.db import connection, transaction


def plans(queries: Any, table: str) -> str:
    """Return the plans of the captured SELECTs that read the table, as they are for many rows.

    PostgreSQL reads a small table whole and sorts it, unless both are made dear.
    """
    found = [one["sql"] for one in queries if f'FROM "{table}"' in one["sql"]]
    kind = "QUERY PLAN" if connection.vendor == "sqlite" else "(COSTS OFF)"
    lines = []
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for dear in ("seqscan", "bitmapscan", "sort"):
                cursor.execute(f"SET LOCAL enable_{dear} = off")
        for sql in found:
            cursor.execute(f"EXPLAIN {kind} {sql}")
            lines += [str(row[-1]) for row in cursor.fetchall()]
    assert lines
    return "\n".join(lines)
