"""Finding and reading the matrices that ``nvidia-smi topo`` prints, as tables of cells, in text that was mistreated.

Cells are a small closed vocabulary, so rows are scanned for words, not cut at columns: lost tabs, glued words
(``NODENODE``, ``NV120-31``) and shifted headers do no harm as long as words and names can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
STATUSES = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")

_CELL = re.compile(r"X(?![A-Za-z])|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U(?![A-Za-z0-9])|N/A")
_CELL_START = re.compile(r"X|NV[0-9]|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|[-0-9]")
_NAME = re.compile(r"GPU[0-9]+|NIC[0-9]+|mlx[0-9]+_(?:bond_)?[0-9]+")
_OTHER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_LABEL = re.compile(r"CPU[ _]?Affinity|NUMA[ _]?Affinity|GPU[ _]?NUMA[ _]?ID|NUMA(?=\s*$)", re.I)
_GPU = re.compile(r"GPU[0-9]+")
_ELLIPSIS = re.compile(r"\.{2,}|…")


@dataclass(slots=True)
class Row:
    """One line of a matrix.

    Attributes:
        label: the device it belongs to.
        cells: words in order; a glued last cell such as ``NV120-31`` stays whole as ``NV120-31``.
        tail: what follows the cells.
        glued: True where words ran together.
        elided: True where dots stand for cells.
    """

    label: str
    cells: list[str]
    tail: str
    glued: bool = False
    elided: bool = False


@dataclass(slots=True)
class Table:
    """A matrix as printed.

    Attributes:
        columns: device names of the header; empty without a header.
        labels: affinity columns of the header.
        rows: in the order of the text.
        line: line number of its first line, from 1.
        first_glued: position of the first column whose name was glued to the one before; None if none.
        header_cut: the header starts in the middle of a word.
        elided: dots stand for columns or rows.
        hint: what stands on the lines just before, for the capability of a P2P matrix.
    """

    columns: list[str]
    labels: list[str]
    rows: list[Row]
    line: int
    first_glued: int | None = None
    header_cut: bool = False
    elided: bool = False
    hint: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def is_p2p(self) -> bool:
        """Whether its cells are P2P statuses instead of distances."""
        words = [cell for row in self.rows for cell in row.cells]
        return any(word in STATUSES for word in words) and not any(
            word in DISTANCES or word.startswith("NV") for word in words
        )


def find_tables(lines: Sequence[str]) -> list[Table]:
    """All matrices of a text, each with its rows; side-by-side ones come apart."""
    tables: list[Table] = []
    current: list[Table] = []
    pending: tuple[int, str] | None = None  # a header that was wrapped
    recent = ""
    for number, line in enumerate(lines, 1):
        headers = _headers(line, number, pending)
        if headers:
            alone = len(headers) == 1 and len(headers[0].columns) == 1 and not headers[0].labels
            pending = (number, line) if alone else None
            for header in headers:
                header.hint = recent
            current = headers
            tables += headers
            continue
        rows = _rows(line, [set(table.columns) for table in current] or [set()])
        if rows:
            if not current:
                current = [Table([], [], [], number)]
                tables += current
            for table, row in zip(current, rows, strict=False):
                table.rows.append(row)
                table.elided |= row.elided
            pending = None
        elif current and current[0].rows and re.match(r"\s*(?:Legend|[A-Z0-9#]+\s*=)", line):
            current = []  # rows after a legend belong to another matrix
        elif current and re.fullmatch(r"\s*(?:\.{2,}|…)\s*", line):
            for table in current:
                table.elided = True
        if line.strip():
            recent = f"{recent} {line.strip()}"[-120:]
    return [table for table in tables if table.rows]


def _headers(line: str, number: int, pending: tuple[int, str] | None) -> list[Table]:
    """The header(s) that a line is, or none."""
    if not _GPU.search(line):
        return []
    pieces = _apart(line, _GPU.findall(line))
    tables = []
    for piece in pieces:
        table = _header(piece, number)
        if table is None:
            return []
        tables.append(table)
    if pending and len(tables) == 1 and pending[0] == number - 1:
        first = _header(pending[1], number - 1)
        if (
            first is not None
            and first.columns[0] not in tables[0].columns
            and _follows(first.columns, tables[0].columns)
        ):
            tables[0].columns[:0] = first.columns
            tables[0].line = number - 1
    return tables


def _follows(before: Sequence[str], after: Sequence[str]) -> bool:
    return before[-1][:3] == "GPU" and after[0] == f"GPU{int(before[-1][3:]) + 1}"


def _apart(line: str, names: Sequence[str]) -> list[str]:
    """Cut a line where its first device name comes again: two matrices side by side."""
    if names and names.count(names[0]) == 2:
        start = line.index(names[0])
        again = re.search(rf"{names[0]}(?![0-9])", line[start + len(names[0]) :])
        if again:
            cut = start + len(names[0]) + again.start()
            return [re.sub(r"\s\S*:\s*$", "", line[:cut]), line[cut:]]
    return [line]


def _header(text: str, number: int) -> Table | None:
    """Read one header; None if the text is not made of names and affinity labels alone."""
    table = Table([], [], [], number)
    text = text.strip()
    fragment = re.match(r"[0-9]{1,2}(?=\s+(?:GPU|NIC))|P?U[0-9]{1,2}(?=\s+(?:GPU|NIC))", text)
    position = 0
    if fragment:  # "2  GPU3  GPU4": what is left of GPU2
        table.header_cut = True
        position = fragment.end()
    end = -1
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _LABEL.match(text, position)
        if match:
            table.labels.append(re.sub(r"[ _]+", " ", match[0]).upper())
        elif (match := _ELLIPSIS.match(text, position)) is not None:
            table.elided = True
        elif (match := _NAME.match(text, position) or _OTHER.match(text, position)) is not None:
            if table.labels or match[0] in table.columns or _CELL.fullmatch(match[0]) or not _is_column(match[0]):
                return None
            if position == end and table.columns and table.first_glued is None:
                table.first_glued = len(table.columns)
            table.columns.append(match[0])
        else:
            return None
        position = end = match.end()
    gpus = [name for name in table.columns if _GPU.fullmatch(name)]
    return table if gpus and (table.columns[0] == gpus[0]) else None


def _is_column(word: str) -> bool:
    """Whether a word can name a device: it carries a number, or is the CPU that some people add."""
    return any(letter.isdigit() for letter in word) or word == "CPU"


def _rows(line: str, columns: Sequence[set[str]]) -> list[Row]:
    """The row(s) that a line is, one for each matrix side by side, or none."""
    text = line.strip(" \t|")
    label = _label(text, columns[0])
    if label is None:
        return []
    pieces = _apart(text, [label] * 2) if len(columns) > 1 and text.count(label) > 1 else [text]
    rows = []
    for piece in pieces:
        row = _row(piece, label)
        if row is None:
            return []
        rows.append(row)
    return rows


def _label(text: str, columns: set[str]) -> str | None:
    match = _NAME.match(text) or _OTHER.match(text)
    if match is None:
        return None
    word = match[0]
    known = word in columns or _NAME.fullmatch(word)
    rest = text[match.end() :]
    return word if known and rest[:1].isspace() and _CELL_START.match(rest.lstrip()) else None


def _row(text: str, label: str) -> Row | None:
    row = Row(label, [], "")
    end = len(label)
    for end, cell, adjacent in _cells(text, len(label)):  # noqa: B007 - the last end is used below
        row.glued |= adjacent
        row.cells.append(cell)
    if not row.cells:
        return None
    rest = text[end:]
    if _ELLIPSIS.match(rest.lstrip()):
        row.elided = True
        rest = ""
    row.tail = rest
    return row


def _cells(text: str, position: int) -> Iterator[tuple[int, str, bool]]:
    """Words of a row: (end, word, stands right behind the one before)."""
    previous = -1
    while True:
        while position < len(text) and text[position] in " \t":
            position += 1
        match = _CELL.match(text, position)
        if match is None or match[0] == "N/A":
            return
        word, end = match[0], match.end()
        if word.startswith("NV") and (glued := re.match(r"[-,][0-9][-,0-9]*", text[end:])):
            word += glued[0]  # NV120-31: where NV12 ends and the CPU list begins is for the caller to say
            end += glued.end()
        elif end < len(text) and not text[end].isspace() and not _CELL_START.match(text, end):
            return  # a longer word that only begins like a cell
        yield end, word, position == previous
        position = previous = end


def split_glued(cell: str, lanes: set[int]) -> tuple[str, str] | None:
    """Take ``NV120-31`` apart into ``NV12`` and ``0-31``, given the lane counts seen elsewhere; None if ambiguous."""
    match = re.fullmatch(r"NV([0-9]+)([-,][-,0-9]*)", cell)
    if match is None:
        return None
    digits = match[1]
    fits = [cut for cut in range(1, len(digits)) if int(digits[:cut]) in lanes]
    if len(fits) != 1:
        return None
    return f"NV{digits[: fits[0]]}", digits[fits[0] :] + match[2]
