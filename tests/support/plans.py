"""How the database goes about its queries."""

from collections.abc import Iterable

from django.db import connection, transaction


def plan_of(queries: Iterable[dict[str, str]]) -> str:
    """Return the plans of captured queries, in one text, as they are for many rows.

    PostgreSQL reads a small table whole and sorts it, unless both are made dear.
    """
    kind = "QUERY PLAN" if connection.vendor == "sqlite" else "(COSTS OFF)"
    found = []
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for dear in ("seqscan", "bitmapscan", "sort"):
                cursor.execute(f"SET LOCAL enable_{dear} = off")
        for query in queries:
            cursor.execute(f"EXPLAIN {kind} {query['sql']}")
            found += [str(row[-1]) for row in cursor.fetchall()]
    assert found
    return " ".join(found)
