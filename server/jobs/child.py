"""The child process: reads one task from stdin, writes progress and the result to stdout, one JSON line each.

It ends when its stdin does, so it never outlives the server that started it, whatever happened to that server.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading

from synth.documents import Json


def main() -> None:
    """Do one task."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # solvers print banners to stdout; they go to the log
    task = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if task["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (task["memory_bytes"], task["memory_bytes"]))
    lock = threading.Lock()

    def write(message: Json) -> None:
        with lock:
            answers.write(json.dumps(message).encode() + b"\n")
            answers.flush()

    from server import tasks

    write(tasks.run(task["name"], task["task"], lambda progress: write({"progress": progress})))


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
