"""One ``nvidia-smi topo -m`` table to facts: which column is which, what each pair's path is, what is in doubt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from probe.facts import Distance, Facts, Gpu, Nic, Path
from probe.findings import finding
from probe.sources.matrix import DISTANCES, Row, Table, split_glued
from synth.errors import CaptureError
from synth.topology import Finding
from synth.topology.model import abridge, natural_key

MAX_LANES = 36
"""No GPU has more NVLinks than this; a larger number is two things glued together."""


def read_table(table: Table, subject: str) -> Facts:
    """Facts of one matrix.

    Raises:
        CaptureError: nothing in it is certain.
    """
    reader = _Reader(table, subject)
    return reader.facts()


class _Reader:
    """Works through one table; ``columns`` and ``findings`` grow as it goes."""

    def __init__(self, table: Table, subject: str) -> None:
        self.table = table
        self.subject = subject
        self.findings: list[Finding] = []
        self._take_glued_apart()
        self.columns = list(table.columns)
        self.certain = len(self.columns)
        self._settle_columns()

    def note(self, code: str, subject: str, message: str) -> None:
        self.findings.append(finding(code, subject, message))

    def _take_glued_apart(self) -> None:
        lanes = {int(cell[2:]) for row in self.table.rows for cell in row.cells if re.fullmatch(r"NV[0-9]+", cell)}
        lanes = {count for count in lanes if count <= MAX_LANES}
        glued = [row.label for row in self.table.rows if row.glued]
        for row in self.table.rows:
            # a CPU list can only follow the last cell
            row.cells[:-1] = ["?" if "-" in cell or "," in cell else cell for cell in row.cells[:-1]]
            last = row.cells[-1]
            if not last.startswith("NV") or (last[2:].isdecimal() and int(last[2:]) <= MAX_LANES):
                continue
            parts = split_glued(last, lanes)
            row.cells[-1] = parts[0] if parts else "?"
            row.tail = (parts[1] if parts else last) + row.tail
            glued.append(row.label)
        if glued:
            self.note(
                "cells-glued",
                self.subject,
                f"cells ran together in the rows of {abridge(glued)}; they were told apart by their words",
            )

    def _settle_columns(self) -> None:
        """Make ``columns`` the names of the cells of a full row, as far as that is certain."""
        table = self.table
        if table.first_glued is not None:
            self.note("header-glued", self.subject, "names in the header ran together and were taken apart")
        length = self._full_length()
        if not self.columns:
            self._name_columns(length)
        elif length > len(self.columns) and self._starts_late(length):
            missing = length - len(self.columns)
            first = int(self.columns[0][3:])
            self.columns[:0] = [f"GPU{number}" for number in range(first - missing, first)]
            self.note(
                "header-cut",
                self.subject,
                f"the header starts at {table.columns[0]}, but the rows hold {missing} columns before it; "
                "their X cells prove that these are GPUs",
            )
        elif length != len(self.columns) and not table.elided:
            self._doubt(length)
        self.certain = min(self.certain if self.certain != len(table.columns) else len(self.columns), len(self.columns))
        foreign = [name for name in self.columns if name == "CPU"]
        if foreign:
            self.note(
                "column-unknown",
                self.subject,
                "the matrix has a column CPU, which nvidia-smi does not print; it was left out",
            )

    def _full_length(self) -> int:
        """How many cells a whole row has."""
        ended = [len(row.cells) for row in self.table.rows if row.tail.strip() and not row.elided]
        counts = Counter(ended or [len(row.cells) for row in self.table.rows if not row.elided])
        if not counts:
            return len(self.columns)
        if not ended and len(self.columns) in counts:
            return len(self.columns)
        if not ended:
            return max(counts)
        return max(counts, key=lambda length: (counts[length], length))

    def _starts_late(self, length: int) -> bool:
        first = self.columns[0]
        missing = length - len(self.columns)
        if not re.fullmatch(r"GPU[0-9]+", first) or int(first[3:]) < missing:
            return False
        offset = int(first[3:]) - missing
        rows = [row for row in self.table.rows if row.label.startswith("GPU") and "X" in row.cells]
        return bool(rows) and all(row.cells.index("X") + offset == int(row.label[3:]) for row in rows)

    def _name_columns(self, length: int) -> None:
        """Without a header: GPU columns are proved by X and NVLink cells, the rest are NICs in order."""
        rows = [row for row in self.table.rows if re.fullmatch(r"GPU[0-9]+", row.label)]
        if not rows or not all("X" in row.cells and row.cells.index("X") == int(row.label[3:]) for row in rows):
            raise CaptureError(
                f"{self.subject}: the matrix has no header and its rows do not show which columns are GPUs; "
                "paste the whole output of nvidia-smi topo -m",
                subject=self.subject,
            )
        if not any(row.tail.strip() for row in rows):
            raise CaptureError(
                f"{self.subject}: the matrix has no header and every row is cut; "
                "paste the whole output of nvidia-smi topo -m",
                subject=self.subject,
            )
        linked = [place for row in rows for place, cell in enumerate(row.cells) if cell.startswith("NV")]
        gpus = 1 + max([int(row.label[3:]) for row in rows] + linked)
        self.columns = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(length - gpus)]
        self.certain = len(self.columns)
        self.note(
            "header-missing",
            self.subject,
            f"the matrix has no header; {gpus} GPU columns follow from the X and NVLink cells, "
            f"the other {length - gpus} are taken as NICs numbered in order",
        )

    def _doubt(self, length: int) -> None:
        """Header and rows differ in length: only what stands before the first doubtful column is certain."""
        gpus = sum(1 for name in self.columns if name.startswith("GPU"))
        glued = self.table.first_glued
        self.certain = max(gpus, glued - 1) if glued is not None and glued > gpus else gpus
        self.certain = min(self.certain, length)
        self.note(
            "columns-ambiguous",
            self.subject,
            f"the header names {len(self.columns)} devices but rows hold {length} cells; "
            f"cells after {self.columns[self.certain - 1]} cannot be assigned and were left out",
        )

    def _usable(self, row: Row) -> list[str]:
        """The cells of a row whose columns are certain."""
        if row.label not in self.columns:
            return []
        place = self.columns.index(row.label)
        cells = row.cells[: self.certain]
        whole = len(row.cells) == len(self.columns) or self.certain < len(self.columns)
        if "X" in cells and cells.index("X") != place:
            return []
        if not whole and row.tail.strip() and not row.elided:
            return cells[: place + 1] if "X" in cells else []
        if not whole and not row.elided and "X" in cells and len(cells) > place + 1 and cells[-1].startswith("NV"):
            return cells[:-1] if self._may_be_cut(cells) else cells
        return cells

    def _may_be_cut(self, cells: Sequence[str]) -> bool:
        """Whether the last NVLink cell of a cut row may have lost a digit (NV1 of NV18)."""
        return any(cell.startswith(cells[-1]) and cell != cells[-1] for cell in cells[:-1])

    def facts(self) -> Facts:
        table = self.table
        known = [name for name in self.columns[: self.certain] if name != "CPU"]
        gpu_names = sorted((name for name in known if name.startswith("GPU")), key=natural_key)
        nic_names = sorted((name for name in known if not name.startswith("GPU")), key=natural_key)
        cells: dict[tuple[str, str], str] = {}
        for row in table.rows:
            for name, cell in zip(self.columns, self._usable(row), strict=False):
                if name != row.label and "CPU" not in (name, row.label):
                    cells[row.label, name] = cell
        paths, doubtful = self._paths(gpu_names + nic_names, cells)
        self._check_rows(gpu_names, nic_names)
        if not paths and len(gpu_names) > 1:
            raise CaptureError(
                f"{self.subject}: the cells of the matrix do not line up with its header, so no pair is certain; "
                "paste the output of nvidia-smi topo -m again",
                subject=self.subject,
            )
        affinity = {row.label: _affinity(table.labels, row.tail) for row in table.rows}
        gpus = tuple(_gpu(name, affinity.get(name, ("", "", ""))) for name in gpu_names)
        nics = tuple(Nic(name=name, device=None if name.startswith("NIC") else name) for name in nic_names)
        self._check_affinity(gpus)
        if table.elided:
            self.note("text-elided", self.subject, "the text was shortened with dots; what they stand for is unknown")
        return Facts(
            source="nvidia-smi topo -m",
            gpus=gpus,
            nics=nics,
            paths=paths,
            doubtful=doubtful,
            findings=tuple(self.findings),
        )

    def _paths(
        self, names: Sequence[str], cells: dict[tuple[str, str], str]
    ) -> tuple[dict[tuple[str, str], Path], frozenset[tuple[str, str]]]:
        paths: dict[tuple[str, str], Path] = {}
        doubtful: set[tuple[str, str]] = set()
        differing: list[str] = []
        for position, a in enumerate(names):
            for b in names[position + 1 :]:
                seen = [path for cell in (cells.get((a, b)), cells.get((b, a))) if (path := _path(cell)) is not None]
                if not seen:
                    continue
                paths[a, b] = max(seen, key=_slowness)
                if len(set(seen)) > 1:
                    doubtful.add((a, b))
                    differing.append(f"{a}-{b} ({seen[0]} and {seen[1]})")
        if differing:
            self.note(
                "matrix-asymmetric",
                self.subject,
                f"the two cells of a pair differ for {abridge(differing)}; the slower is used",
            )
        return paths, frozenset(doubtful)

    def _check_rows(self, gpus: Sequence[str], nics: Sequence[str]) -> None:
        whole = {row.label for row in self.table.rows if len(self._usable(row)) >= min(self.certain, len(self.columns))}
        # old drivers and hand-made excerpts leave NIC rows out altogether, which loses NIC pairs only
        lost = [name for name in gpus if name not in whole]
        if any(name in whole for name in nics):
            lost += [name for name in nics if name not in whole]
        if lost and len(gpus) > 1:
            self.note(
                "rows-missing",
                self.subject,
                f"the rows of {abridge(lost)} are missing or cut; their pairs come from the other rows",
            )

    def _check_affinity(self, gpus: Sequence[Gpu]) -> None:
        if self.table.labels and not any(gpu.cpus or gpu.numa is not None for gpu in gpus):
            self.note("affinity-missing", self.subject, "CPU and NUMA affinity are empty, as inside a container")
        memory = [f"{gpu.name} {gpu.memory_numa}" for gpu in gpus if gpu.memory_numa is not None]
        if memory:
            self.note(
                "memory-numa",
                self.subject,
                f"GPU memory forms NUMA nodes of its own ({abridge(memory)}), which hold no CPUs; bind by CPU affinity",
            )


def _path(cell: str | None) -> Path | None:
    if cell is None or cell in ("X", "?"):
        return None
    if cell.startswith("NV"):
        lanes = int(cell[2:])
        return Path(lanes=lanes) if 0 < lanes <= MAX_LANES else None
    if cell in DISTANCES:
        return Path(distance=Distance.SYS if cell == "SOC" else Distance[cell])
    return None


def _slowness(path: Path) -> tuple[int, int]:
    return (path.distance or 0, -path.lanes)


def _affinity(labels: Sequence[str], tail: str) -> tuple[str, str, str]:
    """(CPU list, NUMA node, GPU NUMA id) of a row's tail; empty where not given."""
    tail = re.sub(r"NUMA\s*(?=[0-9])", "", tail)
    words = tail.split()
    kinds = [("cpu" if "CPU" in label else "id" if "GPU" in label else "numa") for label in labels]
    if not kinds and words:
        kinds = ["cpu", "numa", "id"]
    if len(words) < len(kinds) and "id" in kinds:
        kinds = ["id"] if words == ["N/A"] else [kind for kind in kinds if kind != "id"][: len(words)]
    values = dict(zip(kinds, words, strict=False))
    return values.get("cpu", ""), values.get("numa", ""), values.get("id", "")


def _gpu(name: str, affinity: tuple[str, str, str]) -> Gpu:
    cpus, numa, memory = affinity
    first = re.match(r"[0-9]{1,6}", numa)
    return Gpu(
        name=name,
        cpus=cpus if re.fullmatch(r"[0-9]+(?:[-,][0-9]+)*", cpus) else None,  # "24-47," was cut
        # "0,3-9,11-17" lists the CPUs' node first and memory-only nodes after it; "0-1" says either
        numa=int(first[0]) if first and not re.fullmatch(r"[0-9]+-[0-9]+", numa) else None,
        memory_numa=int(memory) if memory.isdecimal() and len(memory) < 7 else None,
    )
