"""What several resources share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Document = dict[str, Any]
Size = Annotated[int, Field(ge=0, le=2**62)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Rank = Annotated[int, Field(ge=0, lt=65_536)]
LaunchNs = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
CollectiveName = Literal["alltoall", "allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "sendrecv"]


class Request(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", strict=True)
