"""The OpenAPI document says what the API does: every operation, valid examples, no surprise."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator

from config.api import api
from config.openapi import document, paths

SNAPSHOT = Path(__file__).parent / "openapi.json"


def served() -> set[tuple[str, str]]:
    """The operations that the API's routers serve."""
    found = set()
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                shown = re.sub(r"\{(?:\w+:)?(\w+)\}", r"{\1}", f"{prefix}{path}")
                found |= {(shown, method.lower()) for method in operation.methods}
    return found


def test_every_operation_is_described_and_none_is_invented() -> None:
    described = {(path, method) for path, methods in paths().items() for method in methods}
    assert described == served()


def test_the_document_is_the_one_that_was_agreed() -> None:
    """Run with `make openapi` after a deliberate change, and read the difference."""
    assert json.loads(SNAPSHOT.read_text()) == document()


def resolved(schema: Any) -> Any:
    return {**schema, "components": document()["components"]}


def bodies() -> list[Any]:
    return [
        pytest.param(content, id=f"{method} {path}")
        for path, methods in paths().items()
        for method, operation in methods.items()
        if (content := operation.get("requestBody", {}).get("content"))
    ]


@pytest.mark.parametrize("content", bodies())
def test_every_example_is_valid(content: Any) -> None:
    media = content["application/json"]
    Draft202012Validator(resolved(media["schema"])).validate(media["example"])


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(document())
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(document()["components"]["schemas"])


def test_anybody_may_read_it() -> None:
    response = Client().get("/api/openapi.json")
    assert response.json() == document()
