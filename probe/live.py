"""Reading this machine: every source that is there, merged; ``nvidia-smi`` where the library is not."""

from __future__ import annotations

import platform
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace

from probe.facts import Facts
from probe.findings import finding
from probe.merge import merge
from probe.sources import nvidia_smi, nvml, sysfs
from synth.errors import CaptureError

SECONDS = 180
"""nvidia-smi topo -m is known to take two minutes with a partly seated bridge."""


def read() -> Facts:
    """Facts of this machine: NVML (or else ``nvidia-smi``) with sysfs.

    Raises:
        CaptureError: no source shows a GPU; the message says what each said.
    """
    reports: list[Facts] = []
    failures: list[str] = []
    for sources in ((nvml.read, nvidia_smi_output), (sysfs.read,)):
        for source in sources:
            try:
                reports.append(within(SECONDS, source))
                break  # nvidia-smi asks the same driver; it is for machines without the library
            except CaptureError as error:
                failures.append(error.message)
    if not any(report.source != "sysfs" for report in reports):
        raise CaptureError(
            "probe: this machine shows no GPU to the driver (" + "; ".join(failures) + "); "
            "give a capture with --smi or --nccl-xml",
            subject="probe",
        )
    if len(reports) == 2:
        reports[1] = only_visible(reports[1], reports[0])
    merged = merge(reports)
    remarks = tuple(finding("source-failed", message.partition(":")[0], message) for message in failures)
    return replace(merged, findings=merged.findings + remarks)


def within(seconds: float, source: Callable[[], Facts]) -> Facts:
    """What a source says, if it says it in time; a driver call that hangs cannot be interrupted, only left behind.

    Raises:
        CaptureError: the source failed, or did not answer in time.
    """
    answers: queue.Queue[Facts | BaseException] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(source())
        except BaseException as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise CaptureError(
            f"{source.__module__.rpartition('.')[2]}: did not answer within {seconds:g} s; the driver may be stuck "
            "(a partly seated bridge does this)"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def only_visible(tree: Facts, driver: Facts) -> Facts:
    """Sysfs without the GPUs that the driver does not show here: a container sees all of sysfs, but not all GPUs."""
    shown = {gpu.pci for gpu in driver.gpus}
    if None in shown:
        return tree
    return replace(tree, gpus=tuple(gpu for gpu in tree.gpus if gpu.pci in shown))


def nvidia_smi_output() -> Facts:
    """What ``nvidia-smi`` prints on this machine.

    Raises:
        CaptureError: it is not there, fails, or does not answer in time.
    """
    if shutil.which("nvidia-smi") is None:
        raise CaptureError("nvidia-smi: is not on this machine's PATH", subject="nvidia-smi")
    parts = [run(["nvidia-smi", "topo", "-m"])]
    for words in _EXTRAS:
        try:
            parts += [" ".join(["nvidia-smi", *words]), run(["nvidia-smi", *words])]
        except CaptureError:
            continue  # old drivers and virtual GPUs do not know every question
    return nvidia_smi.read("\n".join(parts))


_EXTRAS = (
    ["-L"],
    ["--query-gpu=index,pci.bus_id", "--format=csv,noheader"],
    ["nvlink", "-s"],
    ["topo", "-p2p", "r"],
)
"""What else nvidia-smi is asked: names and UUIDs, bus ids, NVLink ports, direct access."""


def run(command: list[str]) -> str:
    """Output of a command.

    Raises:
        CaptureError: it fails or does not answer in time.
    """
    name = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        raise CaptureError(f"{name}: did not answer within {SECONDS} s", subject=name) from None
    except OSError as error:
        raise CaptureError(f"{name}: cannot be run ({error.strerror})", subject=name) from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).split()
        raise CaptureError(f"{name}: failed ({' '.join(words[:30])})", subject=name)
    return done.stdout


def host_name() -> str:
    """This machine's name, fit for device ids."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node().partition(".")[0]) or "n0"
