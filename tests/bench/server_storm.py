"""Many workers ask one server at once, as when a large job starts: ``python -m tests.bench.server_storm [WORKERS]``.

Each worker opens a connection, resolves its plan, fetches its slice, and asks again with the ETag. Prints, for each of
the three, requests per second and how long a worker waited. Server and workers share this machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Sequence

from synth import topology
from synth.topology import catalog
from tests.bench.serving import serving

MACHINE, SIZE = "hgx-h100x8", 1 << 26


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, etag: str = "") -> tuple[int, str]:
    """One request on an open connection: (status, ETag)."""
    condition = f"If-None-Match: {etag}\r\n" if etag else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n{condition}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head.split()[1]), headers.get("etag", "")


async def storm(port: int, paths: Sequence[str], etags: Sequence[str]) -> tuple[float, list[float], list[str]]:
    """All workers at once: (seconds in all, seconds of each, ETags)."""

    async def worker(path: str, etag: str) -> tuple[float, str]:
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        status, tag = await get(reader, writer, path, etag)
        writer.close()
        assert status == (304 if etag else 200), status
        return time.perf_counter() - begin, tag

    begin = time.perf_counter()
    done = await asyncio.gather(*(worker(path, etag) for path, etag in zip(paths, etags, strict=True)))
    return time.perf_counter() - begin, sorted(seconds for seconds, _ in done), [tag for _, tag in done]


def ask(url: str, body: object = None) -> dict[str, object]:
    """A request before the storm."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def main() -> None:
    """Run it."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    machine = catalog.build(MACHINE)
    with serving() as (url, _):
        stored = ask(f"{url}/v1/topologies", {"topology": topology.to_document(machine)})
        question = f"/v1/resolve?topology={stored['digest']}&collective=alltoall&bytes={SIZE}"
        digest = ask(f"{url}{question}&wait=60&time_limit=10")["digest"]
        port, ranks = int(url.rpartition(":")[2]), len(machine.gpus)
        slices = [f"/v1/plans/{digest}/ranks/{number % ranks}" for number in range(workers)]
        ask(url + slices[0])  # the first one cuts all
        none = [""] * workers
        print(f"{workers} workers at once, {MACHINE}, {ranks} ranks")
        etags = none
        for name, paths in (("resolve", [question] * workers), ("slice", slices), ("slice, 304", slices)):
            given = etags if name.endswith("304") else none
            seconds, each, etags = asyncio.run(storm(port, paths, given))
            p50, p99 = each[len(each) // 2], each[int(len(each) * 0.99)]
            print(f"{name:<11} {workers / seconds:7.0f}/s   median {p50:.2f} s   99 % {p99:.2f} s")


if __name__ == "__main__":
    main()
