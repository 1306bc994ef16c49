"""Chains of events that show when somebody tampered with them.

Each thing that is audited has a chain of its own, so that nothing waits at a global head. A link's
digest covers the last link's, and its content by a salted digest alone: content can be erased, and
the chain still holds.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from django.conf import settings
from django.db import models


class Subject(models.TextChoices):
    """What steers runs and questions; each thing of these kinds has its own chain."""

    POLICY = "policy"
    AGENT = "agent"
    KEY = "key"
    RULE = "rule"
    DELEGATION = "delegation"
    MEMBERSHIP = "membership"
    # What operators did to it.
    RUN = "run"


class AppendOnlyError(TypeError):
    """What is recorded stays as it was recorded."""


class AppendOnlyQuerySet(models.QuerySet[Any]):
    """Rows are added and read; nothing here changes or removes one."""

    def update(self, **kwargs: Any) -> int:
        raise AppendOnlyError(AppendOnlyError.__doc__)

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError(AppendOnlyError.__doc__)

    def bulk_update(self, *args: Any, **kwargs: Any) -> int:
        raise AppendOnlyError(AppendOnlyError.__doc__)

    def bulk_create(
        self,
        objs: Iterable[Any],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[Any]:
        if update_conflicts:
            raise AppendOnlyError(AppendOnlyError.__doc__)
        return super().bulk_create(objs, batch_size, ignore_conflicts)


class AppendOnly(models.Model):
    """A row that is added and read, and stays as it was; what breaks that raises
    `AppendOnlyError`. Rows that others lean on are kept by PROTECT: nothing cascades to these."""

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        abstract = True
        # `task.history.add(event)` would move another task's event, with the base manager's update.
        base_manager_name = "objects"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Add the row. One with the id of another is refused by the database, not written over."""
        if not self._state.adding:
            raise AppendOnlyError(AppendOnlyError.__doc__)
        super().save(*args, **{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError(AppendOnlyError.__doc__)


class ChainedEvent(AppendOnly):
    """One link; append-only. `link` fills in the digests."""

    # The fields that name the chain.
    CHAIN: ClassVar[tuple[str, ...]]

    # 1, 2, 3 … within its chain.
    number = models.PositiveIntegerField()
    type = models.CharField(max_length=30)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    api_key = models.ForeignKey("agentruns.ApiKey", models.PROTECT, null=True, related_name="+")
    # JSON text; empty once erased.
    data = models.TextField(default="{}")
    salt = models.CharField(max_length=32)
    data_digest = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        abstract = True

    def chain(self) -> str:
        """Return the name of the chain that this is a link of."""
        raise NotImplementedError

    @classmethod
    def counts(cls) -> Iterable[tuple[str, int]]:
        """Return (chain, number of its events), where that is kept beside the events."""
        return ()

    def sealed(self) -> list[Any]:
        """Return what the digest covers beside the fields above, as JSON values."""
        return []


def link(event: ChainedEvent, *, after: ChainedEvent | None) -> None:
    """Make `event`, not stored yet, the link that follows `after`."""
    event.number = after.number + 1 if after else 1
    event.salt = secrets.token_hex(16)
    event.data_digest = data_digest(event)
    event.digest = digest(event, after=after.digest if after else "")


def data_digest(event: ChainedEvent) -> str:
    return hashlib.sha256(f"{event.salt}{event.data}".encode()).hexdigest()


def digest(event: ChainedEvent, *, after: str) -> str:
    """Return the link's digest: SHA-256 of a JSON list, hex."""
    covered = [
        *(after, event.chain(), event.number, event.type, event.actor_id, event.api_key_id),
        *(int(event.created_at.timestamp() * 1_000_000), event.data_digest),
        *event.sealed(),
    ]
    return hashlib.sha256(json.dumps(covered).encode()).hexdigest()


def is_erased(event: ChainedEvent) -> bool:
    """Whether the content was taken out, salt and all; the chain holds without it."""
    return event.data == "" and event.salt == ""
