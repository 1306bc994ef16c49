"""What looks like a secret is found and hidden, and nothing else is touched."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentruns.protocol.masking import masked, secret_places

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.sampled_from(["api_key", "token", "max_tokens", "properties", "type", "a"]) | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"api_key": "k", "model": "m"}, {"api_key": "***", "model": "m"}),
        ({"credentials": {"a": 5, "b": True}}, {"credentials": {"a": 0, "b": True}}),
        ({"extra": [{"Authorization": "Bearer x"}]}, {"extra": [{"Authorization": "***"}]}),
        ('{"password": "x"}', '{"password": "***"}'),
        ('{"secret": "x", "secret": null}', '{"secret": null}'),
        ('say "api_key": "x", please', 'say "api_key": "***", please'),
        (
            {"properties": {"token": {"type": "string", "default": "x"}}},
            {"properties": {"token": {"type": "string", "default": "***"}}},
        ),
    ],
)
def test_a_secret_is_hidden(value: Any, hidden: Any) -> None:
    assert masked(value) == hidden


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": 5, "api_key": None, "password": ""},
        '{"a":1,   "b": [ ]}',
        {"properties": {"password": {"type": "string", "description": "of the guest"}}},
        {"properties": {"tokens": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"secret_level": {"type": "integer", "minimum": 1, "maximum": 5}}},
        "our secret: be kind",
    ],
)
def test_what_is_no_secret_stays_as_it_is(value: Any) -> None:
    assert masked(value) == value
    assert secret_places(value) == []


def test_a_secret_has_a_place() -> None:
    value = {"layers": [{"config": {"credentials": {"k": "x"}}}, {"config": '{"token": "x"}'}]}
    assert secret_places(value) == [
        ("layers", 0, "config", "credentials", "k"),
        ("layers", 1, "config"),
    ]


def test_a_mask_in_a_secrets_place_counts_as_one() -> None:
    assert secret_places({"api_key": "***", "stars": "***"}) == [("api_key",)]


@given(JSON)
def test_masking_finds_what_it_hides_and_needs_no_second_time(value: Any) -> None:
    hidden = masked(value)
    assert masked(hidden) == hidden
    if hidden != value:
        assert secret_places(value)
