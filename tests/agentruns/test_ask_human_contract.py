"""The ask-human contract: config rules, argument rules, limits and the exact texts."""

from typing import Any

import pytest
from pydantic import ValidationError

from agentruns.protocol.ask_human import (
    HARD_CAPS,
    AskHumanLayerConfig,
    AskHumanToolArgs,
    LimitExceeded,
    normalise,
)


def field(**changes: Any) -> dict[str, Any]:
    return {"type": "paragraph", "name": "f", "label": "L", **changes}


def select(**changes: Any) -> dict[str, Any]:
    options = [{"value": "a", "label": "A"}, {"value": "b", "label": "B"}]
    return field(type="select", **{"options": options, **changes})


@pytest.mark.parametrize("name", HARD_CAPS)
def test_a_config_over_a_hard_cap_is_refused(name: str) -> None:
    assert getattr(AskHumanLayerConfig(**{name: HARD_CAPS[name]}), name) == HARD_CAPS[name]
    with pytest.raises(ValidationError, match=f"{name} must be <= {HARD_CAPS[name]}"):
        AskHumanLayerConfig(**{name: HARD_CAPS[name] + 1})


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"tool_name": "ask human"}, "tool_name must be a valid tool identifier"),
        (
            {"allowed_field_types": ["select", "select"]},
            "allowed_field_types must not contain duplicates",
        ),
        (
            {"allowed_field_types": ["file", "file-list"]},
            "allowed_field_types cannot include file field types when allow_file_fields is false: "
            "file, file-list",
        ),
        ({"max_fields": -1}, "Input should be greater than or equal to 0"),
        ({"max_actions": 0}, "Input should be greater than or equal to 1"),
        ({"recipients": []}, "Extra inputs are not permitted"),
    ],
)
def test_a_config_that_breaks_a_rule_is_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AskHumanLayerConfig.model_validate(config)
    assert text in str(refused.value)
    assert "DifyAskHumanLayerConfig" in str(refused.value)


def test_a_blank_description_counts_as_none() -> None:
    assert AskHumanLayerConfig(tool_description="  ").tool_description is None


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"question": " "}, "question must not be blank"),
        ({"question": "q", "title": " "}, "title must not be blank"),
        ({"question": "q", "fields": [field(name="1 f")]}, "field name must be a valid identifier"),
        ({"question": "q", "fields": [field(label=" ")]}, "field label must not be blank"),
        ({"question": "q", "fields": [field(), field()]}, "field name 'f' must be unique"),
        ({"question": "q", "actions": [{"id": "a-b", "label": "L"}]}, "action id must be a valid"),
        ({"question": "q", "actions": [{"id": "a", "label": " "}]}, "action label must not be"),
        (
            {"question": "q", "actions": [{"id": "a", "label": "A"}, {"id": "a", "label": "B"}]},
            "action id 'a' must be unique",
        ),
        (
            {"question": "q", "fields": [select(options=[])]},
            "select fields must define at least one option",
        ),
        (
            {"question": "q", "fields": [select(default="z")]},
            "select field 'f' default must match one of its option values",
        ),
        ({"question": "q", "recipients": ["x"]}, "Extra inputs are not permitted"),
        ({"question": "q", "fields": [{"name": "f", "label": "L"}]}, "Unable to extract tag"),
    ],
)
def test_a_malformed_request_is_refused(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        normalise(args, AskHumanLayerConfig())


@pytest.mark.parametrize(
    ("config", "args", "text"),
    [
        ({"max_fields": 0}, {"fields": [field()]}, "fields must contain at most 0 item(s)"),
        (
            {"max_actions": 1},
            {"actions": [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}]},
            "actions must contain at most 1 item(s)",
        ),
        ({"max_question_chars": 1}, {"question": "qq"}, "question must be <= 1 characters"),
        ({"max_markdown_chars": 0}, {"markdown": "m"}, "markdown must be <= 0 characters"),
        (
            {"allowed_field_types": ["select"]},
            {"fields": [field()]},
            "field type 'paragraph' is not allowed by this layer config",
        ),
        (
            {"max_field_label_chars": 1},
            {"fields": [field(label="LL")]},
            "field label 'LL' must be <= 1 characters",
        ),
        (
            {"max_action_label_chars": 1},
            {"actions": [{"id": "a", "label": "AA"}]},
            "action label 'AA' must be <= 1 characters",
        ),
    ],
)
def test_a_request_over_a_limit_is_refused(
    config: dict[str, Any], args: dict[str, Any], text: str
) -> None:
    with pytest.raises(LimitExceeded) as refused:
        normalise({"question": "q", **args}, AskHumanLayerConfig(**config))
    assert str(refused.value) == f"ask_human {text}"


def test_a_request_without_actions_gets_submit_whatever_the_label_limit() -> None:
    args = normalise(
        {"question": "q", "actions": None}, AskHumanLayerConfig(max_action_label_chars=1)
    )
    assert args == AskHumanToolArgs.model_validate(
        {"question": "q", "actions": [{"id": "submit", "label": "Submit", "style": "primary"}]}
    )
