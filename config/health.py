"""Probes for process managers, load balancers and monitors."""

import logging

import redis
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentruns import queries
from config.celery import SWEEPS

logger = logging.getLogger(__name__)

# Sweeps run every few seconds; one that is older than this has stopped (seconds).
SWEEP_AGE = 60.0


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all; touches nothing else."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers, 503 when it doesn't; `degraded` when something else is amiss.

    Without broker or sweeps people can still read and answer, so a load balancer must go on sending
    them here. A monitor asks with `?strict=1`: then `degraded` is 503 as well.
    """
    try:
        ages = queries.sweep_ages()
    except Error:
        logger.warning("database does not answer", extra={"action": "not_ready"}, exc_info=True)
        return JsonResponse({"status": "unavailable", "database": "unavailable"}, status=503)
    broker = _broker()
    sweeps = {name: _age(ages.get(name)) for name in SWEEPS}
    late = any(age is None or age > SWEEP_AGE for age in sweeps.values())
    degraded = late or broker == "unavailable"
    return JsonResponse(
        {
            "status": "degraded" if degraded else "ok",
            "database": "ok",
            "broker": broker,
            "seconds_since_sweep": sweeps,
        },
        status=503 if degraded and "strict" in request.GET else 200,
    )


def _age(seconds: float | None) -> float | None:
    return None if seconds is None else round(max(0.0, seconds), 1)


def _broker() -> str:
    if settings.SAYSO_EMBEDDED:
        return "embedded"
    try:
        with redis.Redis.from_url(
            settings.SAYSO_REDIS_URL, socket_connect_timeout=0.5, socket_timeout=0.5
        ) as client:
            client.ping()
    except redis.RedisError:
        return "unavailable"
    return "ok"
