"""The model chooses names, labels and defaults; none of them reaches past its own field."""

import json
from typing import Any

import pytest
from django.http import QueryDict

from agentruns.protocol.ask_human import AskHumanToolArgs
from inbox.forms import PREFIX, AnswerForm, typed_values
from inbox.services import checking
from tests.support.questions import ARGS


def args_with(*fields: dict[str, Any]) -> AskHumanToolArgs:
    return AskHumanToolArgs.model_validate_json(json.dumps({**ARGS, "fields": list(fields)}))


def paragraph(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "paragraph", "name": name, "label": name, **more}


@pytest.mark.parametrize("name", ["csrfmiddlewaretoken", "action", "digest", "confirm"])
def test_a_field_can_not_stand_in_for_one_of_the_page(name: str) -> None:
    args = args_with(paragraph(name))
    assert list(AnswerForm(args).fields) == [PREFIX + name]
    assert typed_values(args, QueryDict(f"{name}=page")) == {}
    assert typed_values(args, QueryDict(f"{PREFIX}{name}=person")) == {name: "person"}


def test_line_ends_come_back_as_they_were_meant() -> None:
    args = args_with(paragraph("comment"))
    assert typed_values(args, {PREFIX + "comment": "a\r\nb"}) == {"comment": "a\nb"}


def test_unknown_fields_of_a_post_are_left_out() -> None:
    assert typed_values(args_with(paragraph("comment")), {PREFIX + "other": "x"}) == {}


def test_defaults_show_until_somebody_types() -> None:
    args = args_with(paragraph("comment", default="as usual"))
    assert AnswerForm(args).fields[PREFIX + "comment"].initial == "as usual"
    assert AnswerForm(args, typed={"comment": ""}).fields[PREFIX + "comment"].initial == ""


def test_option_values_keep_what_the_model_defined() -> None:
    options = [{"value": " <b>&'x' ", "label": "One"}]
    args = args_with({"type": "select", "name": "env", "label": "Where", "options": options})
    choices = AnswerForm(args).fields[PREFIX + "env"].choices  # type: ignore[attr-defined]
    assert [value for value, _ in choices] == ["", " <b>&'x' "]
    typed = typed_values(args, {PREFIX + "env": " <b>&'x' "})
    assert checking.clean(args, "approve", typed)[1] == {"env": " <b>&'x' "}


def test_what_the_model_wrote_is_escaped() -> None:
    page = AnswerForm(args_with(paragraph("comment", default="</textarea><script>"))).as_p()
    assert "<script>" not in page
    assert "&lt;/textarea&gt;&lt;script&gt;" in page


def test_errors_mark_their_field() -> None:
    form = AnswerForm(args_with(paragraph("comment")), errors={"comment": ["Too long."]})
    field = form.fields[PREFIX + "comment"]
    assert field.widget.attrs["aria-invalid"] == "true"
    assert field.error_messages["answer"] == "Too long."
