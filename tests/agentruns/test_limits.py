"""The limits of policies, and of what a page can show to people."""

from typing import Any

import pytest

from agentruns.protocol import limits as text
from agentruns.protocol.ask_human import AskHumanLayerConfig, LimitExceeded, normalise
from agentruns.protocol.limits import check_for_people, narrow, tightest


def checked(**args: Any) -> None:
    config = AskHumanLayerConfig(max_fields=16, max_actions=8, max_markdown_chars=20_000)
    check_for_people(normalise({"question": "q", **args}, config))


def field(**changes: Any) -> dict[str, Any]:
    return {"type": "paragraph", "name": "f", "label": "L", **changes}


def select(options: list[dict[str, str]]) -> dict[str, Any]:
    return field(type="select", options=options)


def test_an_ordinary_request_passes() -> None:
    checked(title="t" * 200, fields=[field(default="d" * 2000)])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"title": "t" * 201}, "title must be <= 200 characters"),
        ({"fields": [field(default="d" * 2001)]}, "field default must be <= 2000 characters"),
        ({"fields": [field(placeholder="d" * 2001)]}, "field placeholder must be <= 2000"),
        ({"fields": [select([{"value": "v", "label": "l" * 201}])]}, "select option must be <="),
        (
            {"fields": [select([{"value": f"v{n}", "label": "l"} for n in range(101)])]},
            "at most 100 options",
        ),
        ({"fields": [field(name="csrfmiddlewaretoken")]}, "'csrfmiddlewaretoken' is reserved"),
        ({"actions": [{"id": "__timeout", "label": "x"}]}, "'__timeout' is reserved"),
        (
            {"actions": [{"id": "a", "label": "Approve"}, {"id": "b", "label": "\u0410pprove "}]},
            "must not look alike",
        ),
        ({"question": "a\x00b"}, "NUL"),
        ({"markdown": "\u4e16" * 20_000, "question": "\u4e16" * 1000}, None),
        (
            {
                "markdown": "\u4e16" * 20_000,
                "fields": [field(name=f"f{n}", default="\u4e16" * 2000) for n in range(4)],
            },
            "must be <= 64000 bytes in all",
        ),
    ],
)
def test_a_request_that_no_page_should_show_is_refused(
    args: dict[str, Any], said: str | None
) -> None:
    if said is None:
        checked(**args)
        return
    with pytest.raises(LimitExceeded, match=said):
        checked(**args)


def test_a_policy_only_ever_narrows() -> None:
    config = AskHumanLayerConfig(max_fields=4, allow_file_fields=True)
    found = narrow(config, {"max_fields": 2, "max_actions": 8, "allowed_field_types": ["select"]})
    assert (found.max_fields, found.max_actions, found.allowed_field_types) == (2, 4, ["select"])
    assert narrow(config, {}) == config


def test_without_the_flag_no_file_type_stays() -> None:
    config = AskHumanLayerConfig(allow_file_fields=True, allowed_field_types=["file", "select"])
    found = narrow(config, {"allow_file_fields": False})
    assert (found.allow_file_fields, found.allowed_field_types) == (False, ["select"])


def test_the_tightest_of_several_policies_holds() -> None:
    one = {
        "max_fields": 2,
        "allowed_field_types": ["paragraph", "select"],
        "allow_file_fields": True,
    }
    other = {"max_fields": 3, "allowed_field_types": ["select"], "allow_file_fields": False}
    assert tightest(one, None, other) == {
        "max_fields": 2,
        "allowed_field_types": ["select"],
        "allow_file_fields": False,
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Approve", "approve "),
        ("Approve", "\u0410pprove"),
        ("Approve", "Appro\u200bve"),
        ("Pay 10", "Pay IO"),
        ("OK", "\uff2f\uff2b"),
    ],
)
def test_labels_that_look_alike_have_one_key(one: str, other: str) -> None:
    assert text.look_alike_key(one) == text.look_alike_key(other)


def test_labels_that_differ_have_different_keys() -> None:
    labels = ("Approve", "Reject", "Approve with changes", "Cafe", "Caf\u00e9", "\u901a\u8fc7")
    assert len({text.look_alike_key(label) for label in labels}) == len(labels)
