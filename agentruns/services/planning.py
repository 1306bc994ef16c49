"""What the databases' planners can't know of a condition."""

from typing import Any

from django.db.models import BooleanField, Func


class Likely(Func):
    """A single condition (a Q) that nearly every row meets which the rest of the WHERE leaves.

    Without statistics SQLite takes an equality for rare. It would go through all that has one
    state, and leave the partial index for which that state is a condition. Nothing else changes,
    and on PostgreSQL, which has statistics, nothing at all.
    """

    template = "(%(expressions)s)"
    arity = 1
    output_field = BooleanField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return the condition within SQLite's hint."""
        return self.as_sql(compiler, connection, template="likely(%(expressions)s)", **context)
