"""Wiring only: environment, settings, URLs, the Celery app and the embedded server."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
