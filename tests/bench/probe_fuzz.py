"""Fuzz the probe's readers with atheris (pip install atheris): ``python -m tests.bench.probe_fuzz``.

``-max_total_time=600`` ends it after ten minutes.
Anything that is not the probe's own error, in one line, stops the run. Captures seed the corpus when they are there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TOPO = Path(__file__).resolve().parents[3] / "shared" / "data" / "topo"
READERS = 5


def main() -> None:
    """Seed a corpus and fuzz until told to stop."""
    import atheris

    with atheris.instrument_imports():
        from probe import build
        from probe.network import describe
        from probe.sources import lstopo, nccl_graph, nccl_xml, sniff
        from synth.errors import CaptureError

    def once(data: bytes) -> None:
        """One input through one reader, chosen by its first byte."""
        kind, body = (data[0] % READERS, data[1:]) if data else (0, b"")
        try:
            match kind:
                case 0 | 1:
                    build.topology(sniff.read(body, subject="fuzz"))
                case 2:
                    build.topology(nccl_xml.read(body, subject="fuzz"))
                case 3:
                    nccl_graph.read(body, subject="fuzz")
                    build.topology(lstopo.read(body, subject="fuzz"))
                case _:
                    describe.parse(body.decode("utf-8", "replace"), subject="fuzz")
        except CaptureError as error:
            if "\n" in error.message:
                raise AssertionError(f"more than one line: {error.message!r}") from error

    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(sorted(TOPO.iterdir()) if TOPO.is_dir() else []):
            data = file.read_bytes()
            kind = 4 if file.name.startswith("4") else 3 if file.name.startswith("3") else 2 * (file.suffix == ".xml")
            if len(data) < 20_000:
                (Path(folder) / str(number)).write_bytes(bytes([kind]) + data)
        atheris.Setup([*sys.argv, folder], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
