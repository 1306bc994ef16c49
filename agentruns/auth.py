"""Who a program is, and what its key opens: a bearer key in the header, nothing else."""

from datetime import timedelta
from ipaddress import IPv6Address, IPv6Network, ip_address

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from agentruns import rates, statements
from agentruns.models.steering import ApiKey, Scope
from agentruns.services.keys import key_digest

# `last_used_at` is for people; writing it at every request would cost more than it tells.
USED_RESOLUTION = timedelta(minutes=1)
# Requests a minute that one address may send without a valid key.
REFUSALS_A_MINUTE = 60
# Whoever has one IPv6 address has as many as there are in its network.
IPV6_NETWORK = 64


def key_of(request: HttpRequest) -> ApiKey:
    """Return the key that opened the door for this request."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    return key


class Unauthorized(Exception):
    """invalid or missing API key"""


class ScopeMissing(Exception):
    """This API key lacks the scope that str() names."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"This API key lacks the scope {scope.value}.")


def admit(request: HttpRequest) -> ApiKey:
    """Return the key of a request that may go on. Raises `Unauthorized` and `TooManyRequests`.

    A valid key is never held up by what others send from the same address.
    """
    try:
        key = authenticate(request.headers.get("Authorization"))
    except Unauthorized:
        address = _network(request.META.get("REMOTE_ADDR", ""))
        rates.spend(f"address:{address}", REFUSALS_A_MINUTE, "requests without a valid API key")
        raise
    if limit := rate_of(key):
        request.sayso_rate = rates.spend(  # type: ignore[attr-defined]
            f"key:{key.pk}", limit, "requests with this API key"
        )
    return key


def rate_of(key: ApiKey) -> int:
    """Return how many requests a minute the key may send; 0: any number."""
    own = key.rate_per_minute
    return int(settings.SAYSO_API_RATE) if own is None else own


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Network((int(found), IPV6_NETWORK), strict=False))
    return str(found)


def authenticate(header: str | None) -> ApiKey:
    """Return the key of an Authorization header; raises `Unauthorized`, whatever is wrong.

    Every refusal takes the same work, so that neither answer nor time tells which one it was.
    """
    scheme, _, text = (header or "").partition(" ")
    digest = key_digest(text.strip() if scheme.lower() == "bearer" else "")
    key = statements.living_key(digest)
    if key is None:
        raise Unauthorized(Unauthorized.__doc__)
    _note_use(key)
    return key


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is None or now - key.last_used_at > USED_RESOLUTION:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)


def readable(key: ApiKey) -> int | None:
    """Return the key whose runs this one reads: itself, or None for everybody's."""
    return None if reads_all(key) else key.pk


def reads_all(key: ApiKey) -> bool:
    """Whether the key reads everybody's runs."""
    return key.has(Scope.READ_ALL)


def still_reads(key: ApiKey, *, own: bool) -> bool:
    """Whether the key that opened a stream, of its own run or another's, may go on following it."""
    now = statements.living_key(key.digest)
    return now is not None and now.pk == key.pk and (own or reads_all(now))


def answers(key: ApiKey) -> bool:
    """Whether the key may answer what its owner may answer."""
    return key.has(Scope.ANSWER)


def demand_create(key: ApiKey) -> None:
    """Raise `ScopeMissing` unless the key may create runs."""
    _demand(key, Scope.CREATE)


def demand_answer(key: ApiKey) -> None:
    """Raise `ScopeMissing` unless the key may answer."""
    _demand(key, Scope.ANSWER)


def demand_cancel(key: ApiKey, *, own: bool) -> None:
    """Raise `ScopeMissing` unless the key may end its own runs and questions, or else anybody's."""
    _demand(key, Scope.CREATE if own else Scope.ADMIN)


def _demand(key: ApiKey, scope: Scope) -> None:
    if not key.has(scope):
        raise ScopeMissing(scope)
