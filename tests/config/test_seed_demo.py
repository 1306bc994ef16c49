"""The demo is made once, with logins that work, and kept."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate as sign_in
from django.core.management import call_command

from agentruns.auth import authenticate
from agentruns.models.steering import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo(settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    settings.SAYSO_HOME = tmp_path
    call_command("seed_demo")
    found: dict[str, Any] = json.loads((tmp_path / "demo.json").read_text())
    assert found["api_key"] in capsys.readouterr().out
    return found


def test_every_login_and_key_works(demo: dict[str, Any]) -> None:
    for login in demo["users"].values():
        assert sign_in(username=login["username"], password=login["password"]) is not None
    assert authenticate(f"Bearer {demo['approver_api_key']}").may_answer
    assert authenticate(f"Bearer {demo['client_api_key']}").deferred_handling == "client"
    assert Agent.objects.count() == 3


def test_a_second_start_changes_nothing(demo: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    call_command("seed_demo")
    assert json.loads(path.read_text()) == demo
