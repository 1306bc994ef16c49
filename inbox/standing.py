"""Who stands in for whom: delegations that are in force now.

One query tells all of them; there are as many as people are away.
"""

from dataclasses import dataclass

from django.db.models.functions import Now

from inbox.models.routing import Delegation


@dataclass(frozen=True)
class Standing:
    """Each absent person's delegate, by id. A delegate may be away as well: it goes on from there,
    and never in a circle (inbox.services.delegating sees to that)."""

    delegates: dict[int, int]

    def principals(self, user_id: int) -> set[int]:
        """Return the ids of those for whom the user stands in, directly or through others."""
        found: set[int] = set()
        todo = {user_id}
        while todo:
            todo = {away for away, delegate in self.delegates.items() if delegate in todo} - found
            found |= todo
        return found - {user_id}

    def chain(self, user_id: int) -> list[int]:
        """Return who stands in for the user, the nearest first; the last of them is there."""
        found: list[int] = []
        while (user_id := self.delegates.get(user_id, 0)) and user_id not in found:
            found.append(user_id)
        return found

    def possible_votes(self, direct: set[int], *, excluded: int | None) -> int:
        """Return how many different people can vote of those who are asked directly.

        Those who are there, and one for each absent person whose delegate, at the end of the chain,
        is nobody of the others; `excluded` is the requester, who may not answer.
        """
        direct = direct - {excluded}
        away = direct & set(self.delegates)
        stand_ins = {self.chain(one)[-1] for one in away} - direct - {excluded}
        return len(direct - away) + len(stand_ins)


def now() -> Standing:
    """Return what is in force by the database's clock, of people who are active."""
    rows = Delegation.objects.filter(
        starts_at__lte=Now(), ends_at__gt=Now(), user__is_active=True, delegate__is_active=True
    )
    return Standing(dict(rows.order_by("starts_at").values_list("user_id", "delegate_id")))
