"""Votes, counted: how many are missing, who may still cast one, and how many that makes; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from inbox.standing import Standing


class Cast(Protocol):
    """What is looked at of a vote."""

    @property
    def user_id(self) -> int: ...
    @property
    def counts_for_id(self) -> int: ...
    @property
    def action_id(self) -> str: ...


def missing(quorum: int, votes: Iterable[Cast]) -> int:
    """Return how many more it takes for the action that most have chosen."""
    counts = Counter(vote.action_id for vote in votes)
    return max(quorum - max(counts.values(), default=0), 0)


@dataclass(frozen=True)
class Electorate:
    """Who may vote on one question. `direct` are the active people whom it asks themselves; whoever
    is `barred` is the requester, where that one may not answer."""

    direct: frozenset[int]
    standing: Standing
    barred: int | None = None

    def rights(self, user_id: int) -> list[int]:
        """Return those whose right the user may use: their own where they are asked themselves,
        else that of anybody for whom they stand in."""
        if user_id == self.barred:
            return []
        if user_id in self.direct:
            return [user_id]
        return sorted(self.standing.principals(user_id, barred=self.barred) & self.direct)

    def may_vote(self, user_id: int, votes: Sequence[Cast]) -> bool:
        """Whether a right that the user may use is left, and no vote is theirs."""
        used = {vote.counts_for_id for vote in votes}
        voted = any(vote.user_id == user_id for vote in votes)
        return not voted and any(right not in used for right in self.rights(user_id))

    def voters(self, votes: Sequence[Cast]) -> dict[int, list[int]]:
        """Return who may still vote with each right that nobody has used: its owner first."""
        voted, used = {vote.user_id for vote in votes}, {vote.counts_for_id for vote in votes}
        return {
            right: [one for one in self._holders(right) if one not in voted]
            for right in sorted(self.direct - used - {self.barred})
        }

    def _holders(self, right: int) -> list[int]:
        others = self.standing.chain(right, barred=self.barred)
        return [right, *(one for one in others if one not in self.direct)]

    def votes_left(self, votes: Sequence[Cast]) -> int:
        """Return how many more votes there can be at most: each right is used once, and everybody
        votes once. Whoever is away may vote all the same, so that before the first vote these are
        as many as are asked."""
        return _most_pairs(self.voters(votes))

    def reachable(self, quorum: int, votes: Sequence[Cast]) -> bool:
        """Whether so many equal votes can still come together."""
        return self.votes_left(votes) >= missing(quorum, votes)


def _most_pairs(choices: Mapping[int, Sequence[int]]) -> int:
    """How many can have one of their choices, where nothing is had twice (augmenting paths)."""
    had: dict[int, int] = {}

    def settle(one: int, tried: set[int]) -> bool:
        for choice in choices[one]:
            if choice not in tried:
                tried.add(choice)
                if choice not in had or settle(had[choice], tried):
                    had[choice] = one
                    return True
        return False

    return sum(settle(one, set()) for one in choices)
