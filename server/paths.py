"""Which template a path belongs to: for metrics, whose labels must be few, and for the ``Allow`` header."""

from __future__ import annotations

import re
from collections.abc import Mapping

from synth.documents import Json


class Paths:
    """The templates of an application.

    Args:
        operations: methods by template, as in an OpenAPI document.

    >>> paths = Paths({"/jobs/{id}": {"get": {}, "delete": {}}, "/jobs": {"get": {}}})
    >>> paths.template("/jobs/7"), paths.template("/nothing"), paths.methods("/jobs/7")
    ('/jobs/{id}', None, ['DELETE', 'GET'])
    """

    def __init__(self, operations: Mapping[str, Json]) -> None:
        self._known = [
            (re.compile(re.sub(r"{[^}]+}", "[^/]+", template)), template, sorted(map(str.upper, methods)))
            for template, methods in operations.items()
        ]

    def template(self, path: str) -> str | None:
        """The template that a path matches."""
        return next((template for pattern, template, _ in self._known if pattern.fullmatch(path)), None)

    def methods(self, path: str) -> list[str]:
        """All methods of a path, upper case."""
        return next((methods for pattern, _, methods in self._known if pattern.fullmatch(path)), [])
