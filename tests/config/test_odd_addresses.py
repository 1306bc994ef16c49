"""Odd addresses below /api/ are answered in JSON or led to where they belong, never a 500."""

import pytest
from django.test import Client


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sent", "target"),
    [
        ("/api/runs/", "/api/runs"),
        ("/api/runs/?limit=2&q=%0A", "/api/runs?limit=2&q=%0A"),
        ("/api/x%0A/", "/api/x%0A"),
        ("/api/x%0D%0ASet-Cookie:%20a=b/", "/api/x%0D%0ASet-Cookie:%20a%3Db"),
        ("/api/%E5%8C%97%E2%80%A8/", "/api/%E5%8C%97%E2%80%A8"),
        ("/api/x%3Fy/", "/api/x%3Fy"),
        ("/api/%00//", "/api/%00"),
    ],
)
def test_a_slash_at_the_end_leads_to_the_address_without(sent: str, target: str) -> None:
    for ask in (Client().get, Client().post):
        answer = ask(sent)
        assert answer.status_code == 307
        assert answer.headers["Location"] == target


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/", "/api//", "/api/x%0A", "/api/" + "a" * 5_000])
def test_what_is_nowhere_is_not_found(path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
