"""Answering with documents that never change: ready bytes, ETag, 304, gzip, cached for ever."""

from __future__ import annotations

import gzip

from fastapi import Request, Response

from synth.documents import Json, canonical, digest_text

IMMUTABLE = "public, max-age=31536000, immutable"
PRIVATE_IMMUTABLE = "private, max-age=31536000, immutable"


def immutable(request: Request, *, digest: str, packed: bytes, private: bool) -> Response:
    """A stored document: its digest is the ETag.

    Args:
        request: what was asked.
        digest: of the document.
        packed: the document, gzipped.
        private: whether it was given to a token, so that shared caches must not keep it.
    """
    headers = {
        "ETag": f'"{digest}"',
        "Cache-Control": PRIVATE_IMMUTABLE if private else IMMUTABLE,
        "Vary": "Accept-Encoding",
    }
    if matches(request, digest):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(packed, media_type="application/json", headers=headers | {"Content-Encoding": "gzip"})
    return Response(gzip.decompress(packed), media_type="application/json", headers=headers)


def revalidated(request: Request, document: Json, *, headers: dict[str, str] | None = None) -> Response:
    """A document that may change: clients ask again each time, and get 304 while it is the same."""
    text = canonical(document)
    digest = digest_text(text)
    sent = {"ETag": f'"{digest}"', "Cache-Control": "no-cache"} | (headers or {})
    if matches(request, digest):
        return Response(status_code=304, headers=sent)
    return Response(text, media_type="application/json", headers=sent)


def matches(request: Request, digest: str) -> bool:
    """Whether ``If-None-Match`` names this document."""
    given = request.headers.get("if-none-match", "")
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in tags or f'"{digest}"' in tags


def accepts_gzip(request: Request) -> bool:
    """Whether the client reads gzip."""
    for part in request.headers.get("accept-encoding", "").split(","):
        name, _, quality = part.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
