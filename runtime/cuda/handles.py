"""Handles of operations under way on a GPU, and recorded operations that are replayed as CUDA graphs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from runtime.cuda.memory import CudaMemory, current_stream
from synth.errors import InvalidUsage


class DeviceHandle:
    """An operation enqueued on the group's own stream.

    Args:
        result: what the operation gives, once it is done.
        given: the caller's array: its library says which stream waits.
        check: raises when the group has failed meanwhile.
    """

    def __init__(self, result: Any, given: Any, memory: CudaMemory, check: Callable[[], None]) -> None:
        cupy: Any = import_module("cupy")
        self._result, self._given, self._check = result, given, check
        self._event = cupy.cuda.Event(disable_timing=True)
        self._event.record(memory.stream)

    def wait(self) -> Any:
        """Make the caller's current stream wait; the host does not."""
        self._check()
        current_stream(self._given).wait_event(self._event)
        return self._result

    def done(self) -> bool:
        """Whether the GPU has finished it."""
        return bool(self._event.done)


class Recording:
    """Operations recorded as one CUDA graph.

    Attributes:
        result: what the recorded call returned; every replay writes it anew.
    """

    def __init__(
        self, graph: Any, result: Any, given: Any, memory: CudaMemory, follow: Callable[[], None], used: tuple[Any, ...]
    ) -> None:
        self._graph, self._given, self._memory, self._follow = graph, given, memory, follow
        self._held = (*memory.held(), *used)
        memory.recordings.add(self)
        self.result = result

    def release(self) -> None:
        """Give the graph up; NCCL cannot end a communicator that a graph still uses."""
        self._graph, self._held = None, ()

    def replay(self) -> Any:
        """Run it again on the caller's current stream.

        Raises:
            InvalidUsage: its group is closed.
        """
        if self._graph is None:
            raise InvalidUsage("the recording's group is closed; record again with the new one")
        with self._memory.stream_of(self._given):
            self._graph.launch(self._memory.stream)
            self._follow()
        return self.result


def record(
    call: Callable[[], Any],
    given: Any,
    memory: CudaMemory,
    follow: Callable[[], None],
    used: Sequence[Any] = (),
) -> Recording:
    """Run ``call`` once, which makes connections and fills caches, then record it.

    The capture begins and ends on the calling thread, in CUDA's relaxed mode (CuPy's default): it forbids nobody
    anything. NCCL launches from a thread of its own when it does not block; every call waits until it has.

    Args:
        call: only enqueues work; counts are known.
        given: an array it works on.
        memory: of the group.
        follow: called after each replay, to look after the work on the device.
        used: what the graph will read and write; kept as long as the graph, also where the caller keeps none of it.
    """
    cupy: Any = import_module("cupy")
    call()
    current_stream(given).synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with memory.recording(), _current(given, stream):
        stream.begin_capture()
        try:
            result = call()
        except BaseException:
            with contextlib.suppress(Exception):  # why the call failed says more than that its graph is not whole
                stream.end_capture()
            raise
        graph = stream.end_capture()
    graph.upload(stream)
    stream.synchronize()
    return Recording(graph, result, given, memory, follow, (used, stream))  # NCCL remembers the stream by its address


def _current(given: Any, stream: Any) -> Any:
    """A context in which ``stream`` is current for the array's library."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, device=given.device))
    return stream
