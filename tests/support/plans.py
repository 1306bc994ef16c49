"""How the database goes about its queries."""

from collections.abc import Iterable

from django.db import connection


def plan_of(queries: Iterable[dict[str, str]]) -> str:
    """Return the plans of captured queries, in one text."""
    with connection.cursor() as cursor:
        kind = "QUERY PLAN" if connection.vendor == "sqlite" else "(COSTS OFF)"
        if connection.vendor == "postgresql":
            # A small table is read whole unless that is made dear.
            cursor.execute("SET LOCAL enable_seqscan = off")
        found = []
        for query in queries:
            cursor.execute(f"EXPLAIN {kind} {query['sql']}")
            found += [str(row[-1]) for row in cursor.fetchall()]
        return " ".join(found)
