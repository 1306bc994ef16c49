"""The environment: defaults, secrets, and mistakes that are named without being repeated."""

import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from config.env import Env, get_env, keep_secret, known_variables


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in known_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SAYSO_HOME", str(tmp_path / "home"))


def test_nothing_has_to_be_set() -> None:
    env = Env()
    assert env.embedded
    assert env.base_url == "http://127.0.0.1:8000"
    assert (env.run_time_limit, env.max_questions, env.tool_retries) == (600, 20, 3)


def test_the_address_follows_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9001")
    assert Env().base_url == "http://127.0.0.1:9001"


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "")
    monkeypatch.setenv("SAYSO_RUN_TIME_LIMIT", "")
    assert Env().embedded
    assert Env().run_time_limit == 600


def test_lists_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_EXTRA_MODELS", " one.models, two.models ,")
    assert Env().extra_models == ("one.models", "two.models")


@pytest.mark.parametrize(
    "address",
    [
        "sayso.example",
        "ftp://sayso.example",
        "https://",
        "https://sayso.example/path",
        "https://a@b",
    ],
)
def test_an_address_that_links_cannot_be_built_from_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("SAYSO_BASE_URL", address)
    get_env.cache_clear()
    try:
        with pytest.raises(ImproperlyConfigured, match="SAYSO_BASE_URL"):
            get_env()
    finally:
        get_env.cache_clear()


def test_a_slash_at_the_end_of_the_address_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_BASE_URL", "https://Sayso.Example:8443/")
    env = Env()
    assert (env.base_url, env.host) == ("https://sayso.example:8443", "sayso.example")
    assert env.https


def test_keys_are_made_once_and_for_their_owner_alone() -> None:
    signing, encryption = Env().signing_key(), Env().encryption_keys()
    assert len(signing) >= 32
    assert [Fernet(key) for key in encryption]
    assert (Env().signing_key(), Env().encryption_keys()) == (signing, encryption)
    home = Env().home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for name in ("secret_key", "encryption_keys"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_a_key_can_be_put_in_front_of_the_kept_one() -> None:
    old = Env().encryption_keys()
    new = Fernet.generate_key().decode()
    (Env().home / "encryption_keys").write_text(f"{new}\n{old[0]}\n")
    assert Env().encryption_keys() == [new, *old]


def test_processes_that_start_together_agree_on_a_key(tmp_path: Path) -> None:
    numbers = count()

    def keep(path: Path) -> str:
        return keep_secret(path, lambda: str(next(numbers)))

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            assert len(set(pool.map(keep, [tmp_path / f"key-{attempt}"] * 8))) == 1
    assert not list(tmp_path.glob(".*"))


def test_distributed_processes_do_not_make_keys_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:6379/0")
    assert (Env().signing_key(), Env().encryption_keys()) == ("", [])
    assert not Env().home.exists()


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("postgresql://someone:hidden@db/sayso\n")
    monkeypatch.setenv("DATABASE_URL_FILE", str(secret))
    monkeypatch.setenv("SAYSO_SECRET_KEY_FILE", str(secret))
    env = Env()
    assert env.database_url is not None
    assert env.database_url.get_secret_value() == "postgresql://someone:hidden@db/sayso"
    assert env.signing_key() == "postgresql://someone:hidden@db/sayso"
    assert "hidden" not in repr(env)


def test_a_secret_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_SECRET_KEY", "one")
    monkeypatch.setenv("SAYSO_SECRET_KEY_FILE", "/two")
    with pytest.raises(ImproperlyConfigured, match="not both"):
        Env()


def test_a_missing_secret_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_SECRET_KEY_FILE", "/nowhere/secret")
    with pytest.raises(ImproperlyConfigured, match=r"SAYSO_SECRET_KEY_FILE.*/nowhere/secret"):
        Env()


def test_a_mistake_is_named_without_repeating_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_SECRET_KEYS", "not-a-fernet-key")
    get_env.cache_clear()
    try:
        with pytest.raises(ImproperlyConfigured) as caught:
            get_env()
    finally:
        get_env.cache_clear()
    assert "SAYSO_SECRET_KEYS" in str(caught.value)
    assert "not-a-fernet-key" not in str(caught.value)
