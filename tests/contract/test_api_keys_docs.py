"""docs/api-keys.md says what there is: every scope with its door, rates, options, error texts."""

import re

from django.core.management import load_command_class

from agentruns import auth
from agentruns.auth import ScopeMissing, Unauthorized
from agentruns.models.steering import Scope
from agentruns.rates import WINDOW, Rate, TooManyRequests
from config.env import BASE_DIR, Env

PAGE = (BASE_DIR / "docs/api-keys.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def test_every_scope_has_a_row_and_no_row_names_another() -> None:
    assert re.findall(r"^\| `([a-z:_]+)` \|", PAGE, re.MULTILINE) == [
        Scope.CREATE,
        Scope.READ_ALL,
        Scope.ANSWER,
        Scope.ADMIN,
    ]
    assert len(Scope) == 4


def test_what_a_refused_key_reads_is_quoted_as_it_is() -> None:
    refusal = TooManyRequests("requests with this API key", Rate(600, 0), 7)
    for error in (Unauthorized(Unauthorized.__doc__), ScopeMissing(Scope.CREATE), refusal):
        assert f'{{"detail": "{error}"}}' in TEXT


def test_the_numbers_are_the_real_ones() -> None:
    default = Env.model_fields["api_rate"].default
    assert f"`SAYSO_API_RATE` ({default})" in TEXT
    assert f"{auth.REFUSALS_A_MINUTE} a minute over all doors" in TEXT
    assert f"In any {WINDOW} seconds" in TEXT
    assert f"a /{auth.IPV6_NETWORK} network of IPv6" in TEXT
    for name, value in Rate(default, 598).headers().items():
        assert f"{name}: {value}" in TEXT


def test_the_command_has_the_options_that_are_shown() -> None:
    shown = re.search(r"create_api_key (.+)", PAGE)
    assert shown is not None
    parser = load_command_class("agentruns", "create_api_key").create_parser("manage.py", "x")
    options = parser.parse_args(shown[1].split())
    assert (options.owner, options.scopes, options.rate) == ("alice", ["runs:create"], 120)
    assert options.expires_in.days == 90
