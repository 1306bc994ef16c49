"""The API's own way through ASGI answers as the Django way does."""

import json
from pathlib import Path

import httpx

from tests.support.processes import embedded_site


def test_refusals_over_a_socket(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded_site(home, "--migrate", "--demo") as site:
        site.wait_until_ready()
        key = json.loads((home / "demo.json").read_text())["api_key"]
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=site.url, headers=headers) as http:
            moved = http.post("/api/runs/", json={})
            assert (moved.status_code, moved.headers["location"]) == (307, "/api/runs")
            assert http.get("/api/nope").json() == {"detail": "Not Found"}
            wrong = http.get("/api/runs")
            assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})
            large = http.post("/api/runs", content=b"x" * 3_000_000)
            assert large.status_code == 413
            chunked = http.post("/api/runs", content=iter([b"x" * 100_000] * 30))
            assert chunked.status_code in (413, 422)
            agents = http.get("/api/agents")
            assert agents.status_code == 200
            assert agents.headers["x-content-type-options"] == "nosniff"
        assert httpx.get(f"{site.url}/api/agents").status_code == 401
        assert httpx.get(f"{site.url}/api/openapi.json").status_code == 200
