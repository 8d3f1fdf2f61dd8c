"""The group of ranks a training script talks to: every operation, with plans where there are some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from runtime.arrays import Array, flat
from runtime.counts import as_counts, even_rows, stand_in
from runtime.fixed import FixedCapacity
from runtime.force import force_best
from runtime.landing import landing
from runtime.plans import nodes_of
from runtime.schedules import Operation
from synth.collective import Collective
from synth.errors import InvalidArgument, InvalidUsage


class Group(FixedCapacity):
    """All operations among a fixed set of ranks; made by :func:`synth.attach`.

    Arrays are numpy arrays, CuPy arrays or torch tensors; counts are rows of the first axis. Every rank calls the same
    operations in the same order. With ``wait=False`` an operation returns a handle; its ``wait()`` gives the result.

    ``out`` may share memory with the input in any way: where the schedule can run so it does, else the input is copied
    first. all_gather, all_reduce, broadcast, reduce and reduce_scatter run without a copy in the places that NCCL
    knows for them, unless a plan relays through what it has to keep.

    Raises:
        InvalidArgument: the call had no effect; the group stays usable.
        InvalidUsage: the group is closed or aborted, or two threads use it at once.
        UnmatchedGroup: the ranks hold different plans and ``SYNTH_FALLBACK=error``.
        RemoteError: a peer died or is silent; the group is aborted.
    """

    def all_to_all(
        self,
        send: Any,
        send_counts: Sequence[int] | np.ndarray | None = None,
        *,
        counts: np.ndarray | None = None,
        out: Any = None,
        wait: bool = True,
    ) -> Any:
        """Rows for every rank out, rows from every rank in.

        Args:
            send: [rows, ...] rows for rank 0 first, then for rank 1, and so on.
            send_counts: [ranks] how many rows for each; default equally many.
            counts: [ranks, ranks] everybody's send_counts where all ranks know them: saves an exchange.
            out: where the rows go; default a new array. See :meth:`Group` about arrays that share memory.
            wait: False returns a handle.

        Returns:
            (recv, recv_counts): rows by origin, and how many came from each rank.
        """
        source, mine, problem = self._try(lambda: self._rows(send, send_counts, counts, self.size))

        def run() -> tuple[Any, np.ndarray]:
            matrix = as_counts(counts, (self.size, self.size)) if counts is not None else self._share(mine, problem)
            if problem is not None:
                raise problem
            shape = (int(matrix[:, self.rank].sum()), *source.shape[1:])
            target, shift = landing(source, shape, out)
            self._perform(Operation(Collective.ALLTOALL), matrix * source.row, source, target, shift=shift)
            return target.given, matrix[:, self.rank].copy()

        return self._issue(run, wait, source.given)

    def exchange_counts(self, send_counts: Sequence[int] | np.ndarray) -> np.ndarray:
        """Everybody's send counts, [ranks, ranks]: what ``counts`` of :meth:`all_to_all` takes."""
        mine = as_counts(send_counts, (self.size,))
        with self._exclusive():
            return self._share(mine, None)

    def send_recv(
        self,
        pairs: Sequence[tuple[int, int]],
        send: Any,
        send_counts: Sequence[int] | np.ndarray | None = None,
        *,
        counts: np.ndarray | None = None,
        out: Any = None,
        wait: bool = True,
    ) -> Any:
        """Rows along listed pairs only.

        Args:
            pairs: (from, to), the same list on every rank.
            send: [rows, ...] this rank's rows, by target; no rows on ranks that only receive.
            send_counts: rows for each of this rank's targets in ascending order; default equally many.
            counts: [ranks, ranks] everybody's rows where all ranks know them: saves an exchange.
            out: where the rows go; default a new array.
            wait: False returns a handle.

        Returns:
            (recv, recv_counts): rows by origin, and [ranks] how many came from each rank.
        """
        listed = tuple(sorted({(int(a), int(b)) for a, b in pairs}))
        if not listed or any(a == b or not (0 <= a < self.size and 0 <= b < self.size) for a, b in listed):
            raise InvalidArgument(
                f"pairs: must name two different ranks from 0 to {self.size - 1} each", subject="pairs"
            )
        targets = [b for a, b in listed if a == self.rank]

        def rows() -> tuple[Array, np.ndarray]:
            source, some = self._rows(send, send_counts, None, len(targets))
            mine = np.zeros(self.size, dtype=np.int64)
            mine[targets] = some
            return source, mine

        source, mine, problem = self._try(rows)

        def run() -> tuple[Any, np.ndarray]:
            matrix = as_counts(counts, (self.size, self.size)) if counts is not None else self._share(mine, problem)
            if problem is not None:
                raise problem
            target, shift = landing(source, (int(matrix[:, self.rank].sum()), *source.shape[1:]), out)
            operation = Operation(Collective.SENDRECV, pairs=listed)
            self._perform(operation, matrix * source.row, source, target, shift=shift)
            return target.given, matrix[:, self.rank].copy()

        return self._issue(run, wait, source.given)

    def all_gather(
        self, x: Any, *, counts: Sequence[int] | np.ndarray | None = None, out: Any = None, wait: bool = True
    ) -> Any:
        """Everybody's rows, by rank; in place where ``x`` is this rank's rows of ``out``.

        Args:
            x: [rows, ...] this rank's.
            counts: [ranks] rows of each, where they differ.
            out: where all rows go; default a new array.
            wait: False returns a handle.
        """
        source = flat(x, name="x")
        rows = np.full(self.size, source.rows) if counts is None else as_counts(counts, (self.size,))
        if rows[self.rank] != source.rows:
            raise InvalidArgument(f"counts: say {rows[self.rank]} rows for this rank, which has {source.rows}")
        target, shift = landing(source, (int(rows.sum()), *source.shape[1:]), out)
        return self._start(Operation(Collective.ALLGATHER), rows * source.row, source, target, wait=wait, shift=shift)

    def reduce_scatter(
        self,
        x: Any,
        *,
        counts: Sequence[int] | np.ndarray | None = None,
        op: str = "sum",
        out: Any = None,
        wait: bool = True,
    ) -> Any:
        """Everybody's ``x`` combined; rank r keeps the r-th part; in place where ``out`` is that part of ``x``.

        Args:
            x: [rows, ...].
            counts: [ranks] rows of each part; default equal parts.
            op: sum, min, max or prod.
            out: where this rank's part goes; default a new array.
            wait: False returns a handle.
        """
        source = flat(x, name="x")
        rows = even_rows(source.rows, self.size, "x") if counts is None else as_counts(counts, (self.size,))
        if rows.sum() != source.rows:
            raise InvalidArgument(f"counts: sum to {rows.sum()} rows, but x has {source.rows}", subject="counts")
        target, shift = landing(source, (int(rows[self.rank]), *source.shape[1:]), out)
        operation = Operation(Collective.REDUCE_SCATTER)
        return self._start(operation, rows * source.row, source, target, op, wait, shift=shift)

    def all_reduce(self, x: Any, *, op: str = "sum", out: Any = None, wait: bool = True) -> Any:
        """Everybody's ``x`` combined, on every rank; in place with ``out=x``."""
        source = flat(x, name="x")
        count = np.asarray(source.rows * source.row)
        target, shift = landing(source, source.shape, out)
        return self._start(Operation(Collective.ALLREDUCE), count, source, target, op, wait, shift=shift)

    def broadcast(self, x: Any, *, root: int = 0, out: Any = None, wait: bool = True) -> Any:
        """The root's ``x`` on every rank; on the others ``x`` gives shape and type. In place with ``out=x``."""
        source, root = flat(x, name="x"), self._root(root)
        count = np.asarray(source.rows * source.row)
        target, shift = landing(source, source.shape, out)
        operation = Operation(Collective.BROADCAST, root)
        if self.rank != root:
            nothing = source.empty((0, *source.shape[1:]))
            return self._start(operation, count, nothing, target, wait=wait)
        return self._start(operation, count, source, target, wait=wait, shift=shift)

    def reduce(self, x: Any, *, root: int = 0, op: str = "sum", out: Any = None, wait: bool = True) -> Any:
        """Everybody's ``x`` combined on the root, None elsewhere; in place with ``out=x`` on the root."""
        source, root = flat(x, name="x"), self._root(root)
        count = np.asarray(source.rows * source.row)
        at_root = self.rank == root
        shape = source.shape if at_root else (0, *source.shape[1:])
        target, shift = landing(source, shape, out if at_root else None)
        operation = Operation(Collective.REDUCE, root)
        return self._start(operation, count, source, target, op, wait, at_root, shift)

    def trial(self, collective: str, like: Any, *, root: int | None = None, repeat: int = 5) -> dict[str, float]:
        """Time what is ready for an operation on real arrays, and use the fastest from now on.

        Every rank calls it with arrays of the same size and type. The plan stays in force only where it is at least
        as fast as the library's own collective and the direct exchange.

        Args:
            collective: name; alltoall, allgather, reduce_scatter, allreduce, broadcast or reduce.
            like: an input as the operation will see it, with equal counts.
            root: for broadcast and reduce.
            repeat: timed calls of each, after one that is not timed.

        Returns:
            seconds by ``plan``, ``native`` and ``direct``: the slowest rank's median.
        """
        return force_best(self, Operation(Collective(collective), root), like, repeat)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The node of each rank, numbered from 0; all 0 where no topology is known."""
        return nodes_of(self._source, self.size)

    # ------------------------------------------------------------ inside

    def _rows(self, send: Any, send_counts: Any, matrix: Any, parts: int) -> tuple[Array, np.ndarray]:
        source = flat(send, name="send")
        if send_counts is None and matrix is not None:
            rows = as_counts(matrix, (self.size, self.size))[self.rank]
        elif send_counts is None:
            rows = even_rows(source.rows, parts, "send")
        else:
            rows = as_counts(send_counts, (parts,))
        if rows.sum() != source.rows:
            raise InvalidArgument(f"send_counts: sum to {rows.sum()} rows, but send has {source.rows}")
        return source, rows

    def _try(self, rows: Callable[[], tuple[Array, np.ndarray]]) -> tuple[Array, np.ndarray, InvalidArgument | None]:
        """Bad arguments are told to the other ranks in the exchange of counts, so that nobody waits for this rank."""
        try:
            return *rows(), None
        except InvalidArgument as error:
            return stand_in(), np.full(self.size, -1, dtype=np.int64), error

    def _share(self, mine: np.ndarray, problem: InvalidArgument | None) -> np.ndarray:
        """Everybody's counts."""
        if self._recorded is not None:
            raise InvalidUsage("record: the call exchanges counts, which needs the host; pass counts=, which all know")
        rows = self._communicator.gather(np.ascontiguousarray(mine, dtype=np.int64).tobytes())
        matrix = np.stack([np.frombuffer(row, dtype=np.int64) for row in rows])
        if problem is None and (matrix < 0).any():
            culprit = int(np.argwhere(matrix < 0)[0, 0])
            raise InvalidArgument(
                f"rank {culprit} passed arguments that cannot be used; its own error says what is wrong"
            )
        return matrix

    def _root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise InvalidArgument(f"root: {root} is no rank; must be from 0 to {self.size - 1}", subject="root")
        return root
