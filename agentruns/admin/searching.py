"""Ids as people search them: from their beginning, with hyphens or without."""

from typing import Any
from uuid import UUID

from django.db.models import Q

# Shorter ones are words as well.
LEAST = 8


def of_ids(term: str, *fields: str) -> Q | None:
    """Return the condition that one of the fields begins with this id; None where it is none."""
    digits = term.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return None
    # Ids that begin so are those of a range, whose index both databases can use.
    low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    found = Q()
    for field in fields:
        found |= Q(**{f"{field}__gte": low, f"{field}__lte": high})
    return found


class ByIdAdmin:
    """A list that is searched by the beginning of ids alone."""

    id_fields: tuple[str, ...] = ("id",)

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Return what begins so; everything for an empty term, nothing for what is no id."""
        if not search_term.strip():
            return queryset, False
        wanted = of_ids(search_term, *self.id_fields)
        return (queryset.none() if wanted is None else queryset.filter(wanted)), False
