"""Generated requests find no answer that the OpenAPI document does not describe."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from config.openapi import document
from tests.support.processes import embedded_site, free_port

schema: Any = schemathesis.openapi.from_dict(document())
# A stream stays open while its run goes on; its shape is tested where it is followed.
operations = schema.exclude(path_regex="/events/sse$")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    home: Path = tmp_path_factory.mktemp("site") / "home"
    with embedded_site(home, "--migrate", "--demo", port=free_port()) as site:
        site.wait_until_ready()
        yield site.url, json.loads((home / "demo.json").read_text())["approver_api_key"]


@operations.parametrize()  # type: ignore[untyped-decorator]
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_undescribed_comes_back(case: Any, server: tuple[str, str]) -> None:
    url, key = server
    case.call_and_validate(
        base_url=url,
        headers={"Authorization": f"Bearer {key}"},
        checks=(
            checks.not_a_server_error,
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
        ),
    )
