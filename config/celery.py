"""The Celery app and its static schedule.

Messages are hints (ids); the database owns the work. So nothing here tries to make the broker
durable: a lost message costs the time until the next sweep.
"""

import os
import threading
from typing import Any

from celery import Celery
from celery.signals import (
    beat_init,
    setup_logging,
    worker_init,
    worker_ready,
    worker_shutting_down,
)
from kombu import Exchange, Queue

from config import broker as inprocess
from config.env import Env, get_env

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

EXCHANGE = Exchange("sayso")
RUN_QUEUE = "runs"
# After its grace a run is given back; the database needs no longer for that (seconds).
RELEASE_SECONDS = 5.0
SWEEP_QUEUE = "sweeps"

# Talks to a mail server, which may be slow: not in the queue of the sweeps, nor in beat's thread.
MAIL = "inbox.deliver_due"
SEAL = "agentruns.seal"

# Expiring messages: a worker that comes back after hours must not meet hours of ticks.
SCHEDULE: dict[str, dict[str, Any]] = {
    "agentruns.sweep": {"task": "agentruns.sweep", "schedule": 5.0, "options": {"expires": 15}},
    "inbox.expire_due": {"task": "inbox.expire_due", "schedule": 1.0, "options": {"expires": 5}},
    "inbox.remind_due": {"task": "inbox.remind_due", "schedule": 2.0, "options": {"expires": 10}},
    SEAL: {"task": SEAL, "schedule": 60.0, "options": {"expires": 15}},
    MAIL: {"task": MAIL, "schedule": 5.0, "options": {"expires": 15}},
}
# Each of these comes to its end every few seconds, or something is wrong.
SWEEPS = tuple(name for name in SCHEDULE if name not in (MAIL, SEAL))


def broker_settings(env: Env) -> dict[str, Any]:
    """Where messages go, and how long a sender may wait for it (seconds)."""
    if env.redis_url is None:
        inprocess.register()
        return {"broker_url": inprocess.URL}
    return {
        "broker_url": env.redis_url.get_secret_value(),
        "broker_transport_options": {
            "socket_connect_timeout": 1,
            "socket_timeout": 2,
            "socket_keepalive": True,
            # A hint that dies with its worker is the sweep's: no need to keep a copy of each in
            # Redis until it is acknowledged.
            "ack_emulation": False,
            # A sender gives up at once: the sweep finds the work.
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.1,
        },
        "broker_connection_timeout": 1,
        "broker_connection_max_retries": None,
        "broker_connection_retry_on_startup": True,
    }


app = Celery("sayso")
app.conf.update(
    **broker_settings(get_env()),
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_publish_retry=False,
    # Two queues, so that sweeps may have a worker of their own when runs keep the others busy.
    task_queues=[Queue(name, EXCHANGE, routing_key=name) for name in (RUN_QUEUE, SWEEP_QUEUE)],
    task_default_queue=RUN_QUEUE,
    task_default_exchange=EXCHANGE.name,
    task_default_routing_key=RUN_QUEUE,
    task_routes={name: {"queue": SWEEP_QUEUE} for name in SCHEDULE if name != MAIL},
    worker_prefetch_multiplier=1,
    worker_concurrency=get_env().worker_concurrency,
    worker_pool="threads",
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    timezone="UTC",
    enable_utc=True,
    beat_schedule=SCHEDULE,
    # In memory: the sweeps don't care when they last ran, so there is no state to keep in a file.
    beat_scheduler="celery.beat:Scheduler",
    beat_max_loop_interval=1,
    beat_enable_remote_control=False,
)
app.autodiscover_tasks()


@setup_logging.connect
def _leave_logging(**kwargs: Any) -> None:
    """Django has set it up, the same for all processes; Celery would raise the level."""


@worker_shutting_down.connect
def _give_runs_back(**kwargs: Any) -> None:
    """Told to stop: runs end within the grace or go back to the queue. Celery's threads pool knows
    neither, and would wait for a model as long as that takes."""
    from agentruns import worker

    grace = get_env().stop_grace
    threading.Thread(
        target=worker.stop, kwargs={"patience": grace, "grace": RELEASE_SECONDS}, name="stop"
    ).start()


@worker_ready.connect
def _sweep_at_start(**kwargs: Any) -> None:
    for name in SCHEDULE:
        app.send_task(name)


@worker_init.connect
@beat_init.connect
def _refuse_unsafe(**kwargs: Any) -> None:
    from config.checks import refuse_unsafe

    refuse_unsafe()
