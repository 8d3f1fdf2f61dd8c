"""What ranks of a job leave for each other."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from server.api.v1.schemas.common import Request

MAX_VALUE_BYTES = 1024

Job = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,190}$")]
Value = Annotated[
    str,
    StringConstraints(pattern=r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", max_length=1368),
]


class RendezvousValue(Request):
    """One value."""

    value: Value = Field(description=f"base64 of at most {MAX_VALUE_BYTES} bytes, such as NCCL's unique id")


class RendezvousAnswer(BaseModel):
    """The value is there."""

    seconds: float = Field(description="until it expires")


class RendezvousValues(BaseModel):
    """The values of several ranks."""

    values: list[str | None] = Field(description="base64, by rank; null where there is none")
