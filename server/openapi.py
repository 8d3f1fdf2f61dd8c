"""The OpenAPI document: problems described once, documents described as what they are.

``python -m server.openapi > server/openapi.json`` writes the committed copy anew.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.problems import MEDIA_TYPE, Problem

_PROBLEM = {
    "description": "A problem document (RFC 9457) with a stable code",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}

PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}
"""Responses of every route."""

DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The document; its ETag is its digest",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    304: {"description": "The client has it already"},
}
"""Responses of routes that serve an immutable document."""


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}, {}]
        app.openapi_schema = document
    return app.openapi_schema


def dumps(app: FastAPI) -> str:
    """The document as text, as it is committed."""
    return json.dumps(app.openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Print the document."""
    from server.app import create_app
    from server.cli import read_settings

    with tempfile.TemporaryDirectory() as folder:
        print(dumps(create_app(read_settings({"db": f"{folder}/synth.db"}))), end="")


if __name__ == "__main__":
    main()
