"""Many ranks meet at one server: ``python -m tests.bench.rendezvous [RANKS]``; rank and server share this machine."""

from __future__ import annotations

import sys
import threading
import time

from runtime.place import Place
from runtime.rendezvous import meet, open_store
from tests.bench.serving import serving


def main() -> None:
    """Run it."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with serving() as (url, _):
        given = {"SYNTH_SERVER": url, "SYNTH_RENDEZVOUS": "server:bench"}
        seconds = [0.0] * ranks
        ready = threading.Barrier(ranks)

        def arrive(rank: int) -> None:
            place = Place(rank, ranks, 0, "arguments")
            store = open_store(place, 120.0, given)
            ready.wait()
            began = time.perf_counter()
            met = meet(store, "0/id", place, 120.0, b"\1" * 128 if rank == 0 else b"")
            seconds[rank] = time.perf_counter() - began
            assert met[0] == b"\1" * 128

        threads = [threading.Thread(target=arrive, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds.sort()
        print(f"{ranks} ranks met; median {seconds[ranks // 2]:.1f} s, last {seconds[-1]:.1f} s")


if __name__ == "__main__":
    main()
