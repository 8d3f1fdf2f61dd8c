"""A GPU and NCCL of this process's threads: asynchronous streams, events and groups, without any device.

What CUDA refuses while a graph is captured is refused here too. ``install`` puts a module named cupy in place whose
streams are threads, and kernels that work by numpy. A :class:`FakeNccl` moves bytes between ranks that are threads, as
NCCL does: a group is enqueued on a stream, a message to a rank that never posts its side stays there until the
communicator is aborted.
"""

import ctypes
import itertools
import queue
import threading
import time
from collections import defaultdict, deque
from concurrent.futures import Future
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np

from runtime.buffers import Buffers, HostMemory, Slots
from runtime.communicators.library import IN_PROGRESS, READY
from runtime.communicators.nccl import NcclCommunicator
from runtime.elements import Element
from runtime.place import Place
from synth.plan.program import Sums

_streams = {}
_pointers = itertools.count(1000)
_here = threading.local()
_kept = []
_strict = []
"""Graphs that are captured in global mode."""


def memory_at(pointer, size):
    """Bytes at an address, not copied."""
    if not size:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer((ctypes.c_ubyte * size).from_address(pointer), dtype=np.uint8)


class Refused(RuntimeError):
    """What CUDA does not allow while a graph is captured."""


GLOBAL, RELAXED = 0, 2
"""Modes of capture."""


class Stream:
    """Work in order, on a thread of its own."""

    def __init__(self, non_blocking=False):
        self.ptr = next(_pointers)
        _streams[self.ptr] = self
        self._work = queue.SimpleQueue()
        self.graph = None
        threading.Thread(target=self._go, daemon=True).start()

    def _go(self):
        while True:
            act, future = self._work.get()
            act()
            future.set_result(time.perf_counter())

    def submit(self, act):
        future = Future()
        if self.graph is not None:
            if threading.get_ident() != self.graph.thread:
                self.graph.spoilt = "a thread that does not record enqueued work on the stream"
            self.graph.acts.append(act)
            return future
        self._work.put((act, future))
        return future

    def wait_event(self, event):
        if event.graph is not None:  # what waits for captured work is captured too
            if event.graph.ended:
                raise Refused("the event belongs to a capture that ended")
            self.graph = event.graph
        elif event.future is not None:
            if self.graph is not None:
                raise Refused("captured work cannot wait for work outside of the capture")
            self.submit(event.future.result)

    def synchronize(self):
        if self.graph is not None:
            raise Refused("the stream is capturing: nothing can wait for it")
        forbidden("waited for a stream")
        self.submit(lambda: None).result()

    def is_capturing(self):
        return self.graph is not None

    def begin_capture(self, mode=RELAXED):
        self.graph = Graph()
        if mode == GLOBAL:
            _strict.append(self.graph)

    def end_capture(self):
        if self.graph in _strict and threading.get_ident() != self.graph.thread:
            raise Refused("only the thread that began a capture ends it, but for the relaxed mode")
        graph, self.graph = self.graph, None
        graph.ended = True
        if graph in _strict:
            _strict.remove(graph)
        if graph.spoilt:
            raise Refused(graph.spoilt)
        for stream in _streams.values():
            assert stream.graph is not graph or stream in graph.joined, "a stream was not joined"
            if stream.graph is graph:
                stream.graph = None
        return graph

    def __enter__(self):
        current()
        _here.stack = [*_here.stack, self]
        return self

    def __exit__(self, *_):
        _here.stack = _here.stack[:-1]


class Graph:
    """What was captured, in order."""

    def __init__(self):
        self.acts, self.joined, self.ended, self.spoilt = [], set(), False, ""
        self.thread = threading.get_ident()

    def upload(self, stream):
        pass

    def launch(self, stream):
        for act in self.acts:
            stream.submit(act)


def forbidden(what):
    """What spoils every capture in global mode, whichever thread does it, but for those that tolerate captures."""
    for graph in list(_strict):
        if not getattr(_here, "tolerant", False):
            graph.spoilt = f"a thread {what} during a capture in global mode"


class Event:
    def __init__(self, disable_timing=False):
        self.future = self.graph = None

    def record(self, stream):
        self.graph = stream.graph
        if self.graph is not None:
            self.graph.joined.add(stream)
        self.future = stream.submit(lambda: None)

    @property
    def done(self):
        if self.graph is not None:
            raise Refused("the event was captured: nobody can ask for it")
        forbidden("asked for an event")
        return self.future is None or self.future.done()


class Array:
    """What the runtime uses of a CuPy array."""

    def __init__(self, shape=None, dtype=np.uint8, memptr=None, held=None):
        self.a = held if held is not None else memory_at(memptr, int(np.prod(shape))).view(dtype).reshape(shape)
        _kept.append(self.a)  # memory given back is not used again before what reads it, as on a device
        self.data = SimpleNamespace(ptr=self.a.ctypes.data)
        self.shape, self.dtype, self.ndim, self.flags = (
            self.a.shape,
            self.a.dtype,
            self.a.ndim,
            SimpleNamespace(c_contiguous=self.a.flags.c_contiguous),
        )
        self.size, self.nbytes = self.a.size, self.a.nbytes

    def __len__(self):
        return len(self.a)

    def __getitem__(self, key):
        return Array(held=self.a[key])

    def reshape(self, *shape):
        return Array(held=self.a.reshape(*shape))

    def view(self, dtype):
        return Array(held=self.a.view(dtype))

    def get(self):
        """The host's copy, once everything before is done."""
        current().synchronize()
        return self.a.copy()

    def fill(self, value):
        self.a.fill(value)


class Kernel:
    def __init__(self, act):
        self._act, self._loaded = act, False

    def __call__(self, grid, block, arguments):
        if not self._loaded and current().graph is not None:
            raise Refused("a kernel would be loaded while a graph is captured")
        self._loaded = True
        current().submit(lambda: self._act(*arguments))


def current():
    """The stream in use; each thread has one of its own to begin with."""
    if not getattr(_here, "stack", None):
        _here.stack = [Stream()]
    return _here.stack[-1]


def _copies(table, regions, tiles, b0, b1, b2, itemsize):
    columns = table.a[: 5 * regions].reshape(5, regions).tolist()
    bases = (b0, b1, b2)
    for dst, to, src, at, length in zip(*columns, strict=True):
        ctypes.memmove(bases[dst] + to * int(itemsize), bases[src] + at * int(itemsize), length * int(itemsize))


def _sums(element, reduction):
    size = 2 if element == "bfloat16" else np.dtype(element).itemsize

    def act(table, regions, terms, tiles, b0, b1, b2):
        n, m, flat = int(regions), int(terms), table.a
        first, at = flat[3 * n : 4 * n + 1], 5 * n + 2
        sums = Sums(flat[:n], flat[n : 2 * n], flat[2 * n : 3 * n], first, flat[at : at + m], flat[at + m : at + 2 * m])
        parts = tuple(memory_at(base, 2**20) for base in (b0, b1, b2))
        HostMemory().sum(sums, Buffers(parts, Element(element, size)), reduction)

    return act


def _slots(rows, available, stride, counts, wide, capacity, row, block, blocks, dropped):
    kind = "int64" if wide else "int32"
    peers = _slots.peers
    slots = Slots(peers, int(capacity), int(row), int(stride))
    source = SimpleNamespace(data=memory_at(rows, int(available) * int(row)))
    noted = SimpleNamespace(data=memory_at(counts, peers * (8 if wide else 4)), element=SimpleNamespace(name=kind))
    host = HostMemory()
    host.fill_slots(source, noted, slots, memory_at(blocks, peers * int(block)))
    dropped.a[0] += host.dropped()


def install(monkeypatch, peers):
    """Put the module and the kernels in place."""
    _kept.clear()
    cupy = ModuleType("cupy")
    cupy.ndarray = Array
    cupy.empty = lambda shape, dtype=float: Array(held=np.full(shape, 0, dtype=dtype))
    cupy.zeros = cupy.empty

    def asarray(data, dtype=None):
        if current().graph is not None:
            raise Refused("a graph would copy from the host's memory each time it runs")
        return Array(held=np.array(data, dtype=dtype))

    cupy.asarray = asarray
    cupy.asnumpy = lambda array: array.get()

    class Device:
        def __init__(self, number=0):
            self.attributes = {"MultiProcessorCount": 4}

        def use(self):
            pass

        def synchronize(self):
            pass

    def copy(to, source, size, kind, stream):
        _streams[stream].submit(lambda: ctypes.memmove(to, source, size))

    cupy.cuda = SimpleNamespace(
        Device=Device, Stream=Stream, Event=Event, get_current_stream=current,
        get_elapsed_time=lambda a, b: (b.future.result() - a.future.result()) * 1e3,
        UnownedMemory=lambda pointer, size, owner, device_id: pointer, MemoryPointer=lambda memory, offset: memory,
        runtime=SimpleNamespace(memcpyAsync=copy),
    )  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "cupy", cupy)
    _slots.peers = peers
    monkeypatch.setattr("runtime.communicators.watched.tolerate_captures", lambda: setattr(_here, "tolerant", True))
    monkeypatch.setattr("runtime.cuda.memory.copy_kernel", cache(lambda shape: Kernel(_copies)))
    monkeypatch.setattr("runtime.cuda.memory.sum_kernel", cache(lambda name, how, shape: Kernel(_sums(name, how))))
    monkeypatch.setattr("runtime.cuda.memory.slots_kernel", cache(lambda shape: Kernel(_slots)))
    return cupy


class Hub:
    """What the fake communicators of all ranks share."""

    def __init__(self):
        self.changed = threading.Condition()
        self.boxes = defaultdict(deque)
        self.values = {}
        self.calls = []

    def put(self, key, item):
        with self.changed:
            self.boxes[key].append(item)
            self.changed.notify_all()

    def take(self, key, gone):
        with self.changed:
            self.changed.wait_for(lambda: self.boxes[key] or gone())
            return self.boxes[key].popleft() if self.boxes[key] else None


class Store:
    """Where ranks of this process meet."""

    def __init__(self, hub, name):
        self.hub, self.name = hub, name

    def put(self, key, value):
        with self.hub.changed:
            self.hub.values[key] = value
            self.hub.changed.notify_all()

    def get(self, key, deadline):
        with self.hub.changed:
            self.hub.changed.wait_for(lambda: key in self.hub.values, deadline)
            return self.hub.values.get(key)

    def collect(self, name, size, deadline):
        until = time.monotonic() + deadline
        return [self.get(f"{name}/{rank}", max(until - time.monotonic(), 0)) for rank in range(size)]


class FakeNccl:
    """See :class:`runtime.communicators.library.Library`; non-blocking, and in progress for a while after each call."""

    name, blocking = "fake", False

    def __init__(self, hub, version=22809, registers=True):
        self.hub, self._version, self._registers = hub, version, registers
        self.gone, self.busy, self.open = False, 0, None
        self.ranges = []

    def version(self):
        return self._version

    def unique_id(self):
        return b"fake".ljust(128)

    def connect(self, size, rank, unique_id):
        self.size, self.rank, self.key, self.busy, self.splits = size, rank, unique_id, 3, 0

    def state(self):
        self.busy -= self.busy > 0
        if not self.busy:
            self._launch()
        return IN_PROGRESS if self.busy else READY

    def _note(self, *what):
        self.hub.calls.append((self.rank, *what))

    def group_start(self):
        self.open = []

    def group_end(self):
        self.busy = 2  # kernels are launched on a thread of NCCL's own, some time before it is ready

    def _launch(self):
        by_stream = defaultdict(list)
        for kind, pointer, size, peer, stream in self.open or ():
            by_stream[stream].append((kind, pointer, size, peer))
        self.open = None
        for stream, messages in by_stream.items():
            self._note("group", self.key, stream, tuple(message[3] for message in messages))
            _streams[stream].submit(lambda messages=messages: self._exchange(messages))

    def _exchange(self, messages):
        for kind, pointer, size, peer in messages:
            if kind == "send":
                sent = self._is_registered(pointer, size), memory_at(pointer, size).tobytes()
                self.hub.put((self.key, self.rank, peer), sent)
        for kind, pointer, size, peer in messages:
            if kind == "receive":
                found = self.hub.take((self.key, peer, self.rank), lambda: self.gone)
                if found is not None:
                    registered, arrived = found
                    assert len(arrived) == size
                    if registered != self._is_registered(pointer, size):  # NCCL's behaviour is undefined then
                        arrived = bytes(size)
                    memory_at(pointer, size)[:] = np.frombuffer(arrived, dtype=np.uint8)

    def send(self, pointer, bytes, peer, stream):
        self.open.append(("send", pointer, bytes, peer, stream))

    def receive(self, pointer, bytes, peer, stream):
        self.open.append(("receive", pointer, bytes, peer, stream))

    def all_gather(self, source, target, bytes, stream):
        self.group_start()
        for peer in range(self.size):
            self.receive(target + peer * bytes, bytes, peer, stream)
            self.send(source, bytes, peer, stream)
        self.group_end()

    def all_to_all(self, source, target, bytes, stream):
        self.group_start()
        for peer in range(self.size):
            self.receive(target + peer * bytes, bytes, peer, stream)
            self.send(source + peer * bytes, bytes, peer, stream)
        self.group_end()

    def split(self, color, key):
        self.splits += 1
        turn = (self.key, "split", self.splits)
        for peer in range(self.size):
            self.hub.put((turn, self.rank, peer), color)
        colors = [self.hub.take((turn, peer, self.rank), lambda: self.gone) for peer in range(self.size)]
        self.busy = 4
        self._note("split", color)
        if color is None:
            return None
        made = FakeNccl(self.hub, self._version, self._registers)
        members = [peer for peer, theirs in enumerate(colors) if theirs == color]
        made.connect(len(members), members.index(self.rank), (turn, color))
        return made

    def allocate(self, bytes):
        if not self._registers:
            return 0
        self._note("allocate", bytes)
        self.kept = getattr(self, "kept", {})
        memory = np.zeros(bytes, dtype=np.uint8)
        self.kept[memory.ctypes.data] = memory
        return memory.ctypes.data

    def free(self, pointer):
        del self.kept[pointer]

    def register(self, pointer, bytes):
        if not self._registers:
            return None
        self._note("register", bytes)
        self.ranges.append((pointer, pointer + bytes))
        return pointer

    def _is_registered(self, pointer, bytes):
        return any(begin <= pointer and pointer + bytes <= end for begin, end in self.ranges)

    def deregister(self, handle):
        self._note("deregister", handle)

    def abort(self):
        with self.hub.changed:
            self.gone = True
            self.hub.changed.notify_all()
        self._note("abort")

    def destroy(self):
        self.abort()


class FakeWorld:
    """For the fixture ``in_threads``: communicators of one hub."""

    def __init__(self, size, deadline=20.0, **options):
        self.size, self.deadline, self.options, self.hub = size, deadline, options, Hub()

    def communicator(self, rank):
        """Opened by the rank's own thread."""
        return lambda: NcclCommunicator(
            FakeNccl(self.hub, **self.options), Place(rank, self.size, 0, "arguments"),
            Store(self.hub, f"fake {id(self.hub)} {rank}"), 0, self.deadline,
        )  # fmt: skip


def put(data):
    import cupy

    return cupy.asarray(data)
