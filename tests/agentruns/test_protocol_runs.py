"""The bodies of the run API: defaults, what is refused, and in which words."""

from typing import Any

import pytest
from pydantic import ValidationError

from agentruns.protocol.runs import (
    CancelRequest,
    Composition,
    CreateRunRequest,
    ExitIntent,
    LayerSpec,
    RunComposition,
    RunLayerSpec,
)
from agentruns.protocol.snapshots import SessionSnapshot

LAYER: dict[str, Any] = {"name": "prompt", "type": "plain.prompt"}


def body(**changes: Any) -> dict[str, Any]:
    return {"composition": {"layers": [LAYER]}, **changes}


def refusal(data: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(ValidationError) as caught:
        CreateRunRequest.model_validate(data)
    (error,) = caught.value.errors(include_url=False)
    return dict(error)


def test_everything_but_the_composition_has_a_default() -> None:
    assert CreateRunRequest.model_validate(body()).model_dump(mode="json") == {
        "composition": {
            "schema_version": 1,
            "layers": [{**LAYER, "deps": {}, "metadata": {}, "config": None}],
        },
        "purpose": "workflow_node",
        "idempotency_key": None,
        "metadata": {},
        "session_snapshot": None,
        "deferred_tool_results": None,
        "on_exit": {"default": "suspend", "layers": {}},
    }


def test_what_a_request_dumps_it_reads_again() -> None:
    request = CreateRunRequest.model_validate(
        body(
            session_snapshot={"layers": [{"name": "prompt", "lifecycle_state": "suspended"}]},
            deferred_tool_results={"calls": {"c1": None, "c2": "text"}, "metadata": {"c1": {}}},
            on_exit={"layers": {"prompt": "delete"}},
        )
    )
    assert CreateRunRequest.model_validate(request.model_dump(mode="json")) == request
    assert request.on_exit.layers == {"prompt": ExitIntent.DELETE}


def test_a_config_that_is_json_text_is_left_to_its_layer() -> None:
    text = '{"user": "OK"}'
    assert LayerSpec.model_validate({**LAYER, "config": text}).config == text


def test_other_schema_versions_and_no_layers_are_for_the_run_to_refuse() -> None:
    composition = Composition.model_validate({"schema_version": 2, "layers": []})
    assert (composition.schema_version, composition.layers) == (2, [])


@pytest.mark.parametrize(
    ("data", "loc"),
    [
        (body(user_prompt="x"), ("user_prompt",)),
        ({"composition": {"layers": [], "zzz": 1}}, ("composition", "zzz")),
        ({"composition": {"layers": [{**LAYER, "zzz": 1}]}}, ("composition", "layers", 0, "zzz")),
        (body(on_exit={"zzz": 1}), ("on_exit", "zzz")),
        (body(deferred_tool_results={"zzz": 1}), ("deferred_tool_results", "zzz")),
        (body(session_snapshot={"layers": [], "zzz": 1}), ("session_snapshot", "zzz")),
        (
            body(session_snapshot={"layers": [{"name": "a", "lifecycle_state": "new", "zzz": 1}]}),
            ("session_snapshot", "layers", 0, "zzz"),
        ),
    ],
)
def test_unknown_keys_are_refused_at_every_level(
    data: dict[str, Any], loc: tuple[str | int, ...]
) -> None:
    error = refusal(data)
    assert (error["type"], error["loc"]) == ("extra_forbidden", loc)
    assert error["msg"] == "Extra inputs are not permitted"


def test_an_unknown_exit_intent_is_refused_as_recorded() -> None:
    assert refusal(body(on_exit={"default": "pause"})) == {
        "type": "enum",
        "loc": ("on_exit", "default"),
        "msg": "Input should be 'delete' or 'suspend'",
        "input": "pause",
        "ctx": {"expected": "'delete' or 'suspend'"},
    }


def test_an_unknown_purpose_is_refused_as_recorded() -> None:
    expected = "'workflow_node', 'single_step', 'agent_app', 'babysit' or 'fasten_preview'"
    error = refusal(body(purpose="nope"))
    assert (error["type"], error["msg"]) == ("literal_error", f"Input should be {expected}")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"idempotency_key": 5}, "string_type"),
        ({"metadata": []}, "dict_type"),
        ({"deferred_tool_results": {"metadata": {"c1": "x"}}}, "dict_type"),
    ],
)
def test_wrong_types_are_refused(changes: dict[str, Any], kind: str) -> None:
    assert refusal(body(**changes))["type"] == kind


def test_an_active_layer_is_refused_in_a_snapshot() -> None:
    layers = [{"name": "a", "lifecycle_state": "active"}]
    assert refusal(body(session_snapshot={"layers": layers}))["msg"] == (
        "Value error, LifecycleState.ACTIVE is internal-only and cannot appear in session "
        "snapshots."
    )


@pytest.mark.parametrize("state", ["new", "suspended", "closed"])
def test_other_states_are_read_and_written(state: str) -> None:
    data = {"layers": [{"name": "a", "lifecycle_state": state, "runtime_state": {"n": 1}}]}
    dumped = SessionSnapshot.model_validate(data).model_dump(mode="json")
    assert dumped == {"schema_version": 1, **data}


def test_a_cancel_takes_a_reason_and_a_message_only() -> None:
    assert CancelRequest.model_validate({}).model_dump() == {"reason": None, "message": None}
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        CancelRequest.model_validate({"why": "x"})


def test_the_examples_names_are_the_same_classes() -> None:
    assert RunComposition is Composition
    assert RunLayerSpec is LayerSpec
