"""What is written of every change of limits, rules, keys and agents."""

import json
from datetime import datetime
from typing import Any

from django.db import IntegrityError, models, transaction

from agentruns import audit
from agentruns.audit import Subject
from agentruns.models.audit import SteeringEvent
from agentruns.protocol.masking import masked

# Not worth a line, or nobody's to read.
UNSAID = frozenset(
    {"id", "updated_at", "last_used_at", "digest", "version", "password", "last_login"}
)
TRIES = 5


def state_of(thing: models.Model) -> dict[str, Any]:
    """Return what the audit tells of a stored thing: its fields as JSON values, secrets masked."""
    found: dict[str, Any] = {
        field.name: _value(getattr(thing, field.attname))
        for field in thing._meta.concrete_fields
        if field.name not in UNSAID
    }
    for field in thing._meta.many_to_many:
        found[field.name] = sorted(str(other) for other in getattr(thing, field.name).all())
    return found


def _value(value: Any) -> Any:
    if isinstance(value, list | dict):
        # What an event says can't be taken back.
        return masked(value)
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {"before": …, "after": …} with the fields that differ."""
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {
        "before": {name: before[name] for name in changed if name in before},
        "after": {name: after[name] for name in changed if name in after},
    }


def hidden(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an event's fields with what looks like a secret masked.

    Events are read with this too: older ones may hold what nobody masked.
    """
    # A number is an id, above all that of a rule's `api_key`.
    return {
        name: value if isinstance(value, int) else masked({name: value})[name]
        for name, value in fields.items()
    }


def record(
    *,
    subject: Subject,
    subject_id: object,
    kind: str,
    actor_id: int | None,
    now: datetime,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    api_key_id: int | None = None,
) -> None:
    """Add an event to the thing's chain, in the caller's transaction, which changes the thing.

    What an event says can't be taken back: secrets are masked, whoever calls. `api_key_id` names
    the key with which a program acted for the actor.
    """
    changed = differences(before or {}, after or {})
    data = json.dumps({when: hidden(state) for when, state in changed.items()}, ensure_ascii=False)
    for attempt in range(TRIES):
        event = SteeringEvent(
            subject=subject,
            subject_id=str(subject_id),
            type=kind,
            actor_id=actor_id,
            api_key_id=api_key_id,
            data=data,
            created_at=now,
        )
        try:
            with transaction.atomic():
                audit.link(event, after=_last(subject, str(subject_id)))
                event.save(force_insert=True)
            return
        except IntegrityError:
            # Somebody changed the same thing at the same moment, and was first.
            if attempt == TRIES - 1:
                raise


def _last(subject: Subject, subject_id: str) -> SteeringEvent | None:
    chain = SteeringEvent.objects.filter(subject=subject, subject_id=subject_id)
    return chain.order_by("-number").first()
