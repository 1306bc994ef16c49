"""Everything that pages say is there in Chinese, and what is compiled is what was translated."""

import ast
import gettext
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from config.env import BASE_DIR
from tests.support.processes import inherited_environment

FOLDER = BASE_DIR / "locale/zh_Hans/LC_MESSAGES"


def entries(text: str) -> dict[str, str]:
    """Message ids and translations of a .po file; of plurals, the first form."""
    joined = re.sub(r'"\n"', "", text)
    found = re.findall(
        r'^msgid "(.*)"\n(?:msgid_plural ".*"\n)?msgstr(?:\[0\])? "(.*)"', joined, re.M
    )
    return {key: value for key, value in found if key}


def test_nothing_is_untranslated_or_doubtful() -> None:
    text = (FOLDER / "django.po").read_text(encoding="utf-8")
    assert "fuzzy" not in text
    assert [key for key, value in entries(text).items() if not value] == []


def test_translations_keep_their_placeholders() -> None:
    for key, value in entries((FOLDER / "django.po").read_text(encoding="utf-8")).items():
        holes = re.compile(r"%\(\w+\)[sd]")
        assert sorted(holes.findall(key)) == sorted(holes.findall(value)), key


def test_what_is_compiled_is_what_was_translated() -> None:
    with (FOLDER / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for key, value in entries((FOLDER / "django.po").read_text(encoding="utf-8")).items():
        plain = key.replace('\\"', '"')
        said = compiled.gettext(plain)
        said = compiled.ngettext(plain, plain, 2) if said == plain else said
        assert said == value.replace('\\"', '"')


def test_no_message_hides_in_a_formatted_string() -> None:
    """Some versions of xgettext read what stands in an f-string, some do not."""
    for name in ("agentruns", "inbox", "config"):
        for path in (BASE_DIR / name).rglob("*.py"):
            for string in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(string, ast.JoinedStr):
                    called = {n.func.id for n in ast.walk(string) if _is_plain_call(n)}
                    assert not called & {"_", "gettext", "ngettext"}, path


def _is_plain_call(node: ast.AST) -> TypeGuard[Any]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


@pytest.mark.gettext
def test_every_message_of_the_pages_is_in_the_catalogue(tmp_path: Path) -> None:
    for name in ("agentruns", "inbox", "config", "templates", "locale", "manage.py"):
        source = BASE_DIR / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    options = ["--locale", "zh_Hans", "--no-location", "--no-obsolete"]
    subprocess.run(
        [sys.executable, "manage.py", "makemessages", *options],
        cwd=tmp_path,
        env={
            **inherited_environment(),
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "SAYSO_HOME": str(tmp_path / "home"),
        },
        check=True,
        capture_output=True,
    )
    fresh = entries((tmp_path / "locale/zh_Hans/LC_MESSAGES/django.po").read_text(encoding="utf-8"))
    known = entries((FOLDER / "django.po").read_text(encoding="utf-8"))
    assert set(fresh) == set(known), "run make messages, and translate what is new"
