"""Who stands in for whom: delegations that are in force now.

One query tells all of them; there are as many as people are away.
"""

from dataclasses import dataclass, field
from datetime import datetime

from django.db.models.functions import Now

from inbox.models.routing import Delegation


@dataclass(frozen=True)
class Standing:
    """Each absent person's delegate, by id. A delegate may be away as well: it goes on from there,
    and never in a circle (inbox.services.delegating sees to that).

    Whoever is `barred` (the requester of a question, who may not answer it) stands in for nobody
    there, and nobody stands in for them or through them.
    """

    delegates: dict[int, int] = field(default_factory=dict)
    # Until when somebody is away, and everybody's user names, by id.
    until: dict[int, datetime] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def principals(self, user_id: int, *, barred: int | None = None) -> set[int]:
        """Return the ids of those for whom the user stands in, directly or through others."""
        found: set[int] = set()
        todo = {user_id} - {barred}
        while todo:
            away = {one for one, delegate in self.delegates.items() if delegate in todo}
            todo = away - found - {barred}
            found |= todo
        return found - {user_id}

    def chain(self, user_id: int, *, barred: int | None = None) -> list[int]:
        """Return who stands in for the user, the nearest first; the last of them is there."""
        found: list[int] = []
        while user_id != barred:
            user_id = self.delegates.get(user_id, 0)
            if not user_id or user_id in (barred, *found):
                break
            found.append(user_id)
        return found


def now() -> Standing:
    """Return what is in force by the database's clock, of people who are active."""
    rows = Delegation.objects.filter(
        starts_at__lte=Now(), ends_at__gt=Now(), user__is_active=True, delegate__is_active=True
    )
    found = Standing()
    columns = ("user_id", "user__username", "delegate_id", "delegate__username", "ends_at")
    for away, name, delegate, other, until in rows.order_by("starts_at").values_list(*columns):
        found.delegates[away], found.until[away] = delegate, until
        found.names.update({away: name, delegate: other})
    return found
