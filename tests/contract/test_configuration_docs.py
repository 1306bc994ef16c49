"""docs/configuration.md and docs/decisions.md say everything there is to say."""

import re
import tomllib

import pytest

from config.checks import CHECKS
from config.env import BASE_DIR, FILE_FIELDS, Env, variable_name

CONFIGURATION = (BASE_DIR / "docs/configuration.md").read_text(encoding="utf-8")
DECISIONS = (BASE_DIR / "docs/decisions.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([A-Z_]+)`(?: \*file\*)? \| (.+?) \|", CONFIGURATION, re.MULTILINE))


@pytest.mark.parametrize("field", Env.model_fields)
def test_every_variable_has_a_row(field: str) -> None:
    assert variable_name(field) in ROWS


def test_no_row_names_a_variable_that_is_gone() -> None:
    assert set(ROWS) == {variable_name(field) for field in Env.model_fields}


@pytest.mark.parametrize("field", Env.model_fields)
def test_numbers_and_levels_are_the_real_defaults(field: str) -> None:
    default = Env.model_fields[field].default
    if isinstance(default, bool):
        assert ROWS[variable_name(field)] == f"`{str(default).lower()}`"
    elif isinstance(default, int) or field == "log_level":
        assert ROWS[variable_name(field)] == f"`{default}`"


def test_the_variables_that_may_come_from_files_are_marked() -> None:
    marked = set(re.findall(r"^\| `([A-Z_]+)` \*file\* \|", CONFIGURATION, re.MULTILINE))
    assert marked == {variable_name(field) for field in FILE_FIELDS}


def test_every_check_is_explained() -> None:
    source = (BASE_DIR / "config/checks.py").read_text(encoding="utf-8")
    ids = re.findall(r'id="(sayso\.[EW]\d+)"', source)
    assert len(ids) == len(set(ids)) == len(CHECKS)
    assert re.findall(r"^\| `(sayso\.[EW]\d+)` \|", CONFIGURATION, re.MULTILINE) == ids


def test_every_library_has_a_reason() -> None:
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {re.split(r"[^\w-]", requirement)[0] for requirement in wanted}
    assert {name for name in names if name not in DECISIONS} == set()


def test_locks_name_no_registry() -> None:
    for lock in (BASE_DIR / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text(encoding="utf-8")
