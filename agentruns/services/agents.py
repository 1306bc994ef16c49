"""Saved agents and their versions: each change of the composition is one, and none is lost."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from agentruns.audit import Subject
from agentruns.composing import same
from agentruns.models.steering import Agent, AgentVersion
from agentruns.protocol.masking import masked, secret_places
from agentruns.services import auditing


class ChangedMeanwhile(Exception):
    """Somebody has changed this agent since you opened it. What you typed is still here."""


class NoSuchVersion(Exception):
    """This agent has no such version."""


class HoldsSecret(Exception):
    """Whoever may look at agents can read a composition: leave credentials out, and give the
    provider's key to the server's environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_API_KEY).
    """

    def __init__(self, places: list[str]) -> None:
        advice = " ".join(str(HoldsSecret.__doc__).split())
        super().__init__(f"{', '.join(places)}: this looks like a secret. {advice}")
        self.places = places


def secrets_in(composition: Any) -> list[str]:
    """Return where a composition (any JSON data) holds what looks like a secret, as
    `llm.config.credentials.api_key`; inside of JSON text, the place is the text's."""
    return [_named(composition, place) for place in secret_places(composition)]


def _named(composition: Any, place: tuple[str | int, ...]) -> str:
    if place[:1] == ("layers",) and len(place) > 2 and isinstance(place[1], int):
        layer = composition["layers"][place[1]]
        if isinstance(layer, dict) and isinstance(name := layer.get("name"), str):
            place = (name, *place[2:])
    return ".".join(map(str, place))


def _refuse_secrets(composition: Any) -> None:
    if places := secrets_in(composition):
        raise HoldsSecret(places)


def first_version(*, agent: Agent, actor_id: int | None, now: datetime) -> None:
    """Record the composition that a new agent begins with; in the caller's transaction, which is
    to be taken back where this raises `HoldsSecret`."""
    _refuse_secrets(agent.composition)
    _record(agent.pk, 1, agent.composition, actor_id, now)


def change_composition(
    *,
    agent_id: int,
    composition: dict[str, Any],
    base_version: int,
    actor_id: int | None,
    now: datetime,
) -> int:
    """Make `composition` the agent's, and return its version's number; the same one again is none.

    Sessions that have begun keep theirs. Raises `HoldsSecret` and `ChangedMeanwhile`.
    """
    _refuse_secrets(composition)
    with transaction.atomic():
        mine = Agent.objects.filter(pk=agent_id, version=base_version)
        # Holds the row, so that of two changes the second one learns of the first.
        if not mine.update(version=F("version")):
            raise ChangedMeanwhile(ChangedMeanwhile.__doc__)
        agent = Agent.objects.get(pk=agent_id)
        if same(agent.composition, composition):
            return base_version
        number = base_version + 1
        if not AgentVersion.objects.filter(agent=agent_id, number=base_version).exists():
            # An agent that was not made by our forms. No version can be changed later.
            earlier = masked(agent.composition)
            _record(agent_id, base_version, earlier, None, agent.updated_at)
        mine.update(version=number, composition=composition, updated_at=now)
        _record(agent_id, number, composition, actor_id, now)
    return number


def restore_version(
    *, agent_id: int, number: int, base_version: int, actor_id: int, now: datetime
) -> int:
    """Make an earlier version's composition the newest. Raises `NoSuchVersion`, `HoldsSecret` and
    `ChangedMeanwhile`."""
    with transaction.atomic():
        old = AgentVersion.objects.filter(agent=agent_id, number=number).first()
        if old is None:
            raise NoSuchVersion(NoSuchVersion.__doc__)
        before = Agent.objects.get(pk=agent_id).composition
        made = change_composition(
            agent_id=agent_id,
            composition=old.composition,
            base_version=base_version,
            actor_id=actor_id,
            now=now,
        )
        auditing.record(
            subject=Subject.AGENT,
            subject_id=agent_id,
            kind=f"version {number} again",
            actor_id=actor_id,
            now=now,
            before={"composition": masked(before)},
            after={"composition": masked(old.composition)},
        )
    return made


def _record(
    agent_id: int, number: int, composition: dict[str, Any], actor_id: int | None, now: datetime
) -> None:
    AgentVersion.objects.create(
        agent_id=agent_id,
        number=number,
        composition=composition,
        created_by_id=actor_id,
        created_at=now,
    )
