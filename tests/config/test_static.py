"""Static files through whitenoise, in both of Django's worlds."""

import asyncio
from typing import Any

from django.test import AsyncClient, Client

STYLESHEET = "/static/admin/css/base.css"


def check(response: Any) -> None:
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/css")
    assert response["Content-Length"] == str(len(response.content))
    assert b"--primary" in response.content
    assert "default-src 'none'" in response["Content-Security-Policy"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in response


def test_a_stylesheet_is_served() -> None:
    check(Client().get(STYLESHEET))


def test_a_stylesheet_is_served_under_asgi_without_a_warning() -> None:
    async def get() -> Any:
        return await AsyncClient().get(STYLESHEET)

    check(asyncio.run(get()))


def test_a_browser_that_has_it_is_told_so() -> None:
    etag = Client().get(STYLESHEET)["ETag"]
    response = Client().get(STYLESHEET, headers={"If-None-Match": etag})
    assert (response.status_code, response.content) == (304, b"")


def test_a_part_of_a_file_is_served() -> None:
    response = Client().get(STYLESHEET, headers={"Range": "bytes=0-9"})
    assert (response.status_code, len(response.content)) == (206, 10)


def test_a_path_cannot_leave_the_static_files() -> None:
    assert Client().get("/static/../config/settings.py").status_code == 404
    assert Client().get("/static/%2e%2e/manage.py").status_code == 404
