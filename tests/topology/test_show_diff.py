from synth import topology
from synth.topology import Finding, Severity, catalog
from synth.topology.diff import diff
from synth.topology.model import Topology
from synth.topology.show import matrix, render


def test_the_matrix_tells_class_and_rate_of_every_route() -> None:
    rows = [line.split() for line in matrix(catalog.build("ndv2x1")).splitlines()[1:]]
    assert rows[0] == [f"gpu{i}" for i in range(8)]
    assert rows[1][0] == "gpu0"
    cells = " ".join(rows[1][1:])
    assert cells.startswith("X NV 50 NV 25 NV 25 NV 50 .")


def test_the_drawing_names_every_device_and_finding() -> None:
    machine = catalog.build("asym8")
    noticed = Finding(code="nvlink-down", severity=Severity.ERROR, subject="n0/gpu3", message="a link is down")
    shown = render(Topology(name=machine.name, devices=machine.devices, links=machine.links, findings=(noticed,)))
    assert all(device.id.rpartition("/")[2] in shown for device in machine.devices)
    assert "error: nvlink-down [n0/gpu3] a link is down" in shown


def test_a_large_cluster_is_drawn_short() -> None:
    assert len(render(catalog.build("hgx-h100x64")).splitlines()) < 20


def test_equal_topologies_do_not_differ_and_a_slower_link_does() -> None:
    machine = catalog.build("asym8")
    assert diff(machine, machine) == ()
    slower = topology.degrade(machine, {("n0/gpu0", "n0/nvsw0"): 0.5})
    kinds = {(change.kind, change.subject) for change in diff(machine, slower)}
    assert ("link-changed", "n0/gpu0:n0/nvsw0") in kinds
    change = next(c for c in diff(machine, slower) if c.kind == "link-changed")
    assert "300.00 GB/s" in (change.before or "")
    assert "150.00 GB/s" in (change.after or "")


def test_removed_devices_links_and_findings_are_named() -> None:
    machine = catalog.build("ndv2x1")
    rest = Topology(
        name="rest",
        devices=machine.devices[:-1],
        links=tuple(link for link in machine.links if "n0/gpu7" not in (link.src, link.dst)),
    )
    changes = diff(machine, rest)
    assert {c.subject for c in changes if c.kind == "device-removed"} == {"n0/gpu7"}
    assert {c.subject for c in diff(rest, machine) if c.kind == "device-added"} == {"n0/gpu7"}
    assert all(c.to_document()["kind"] for c in changes)
    assert any(str(c).startswith("- link n0/gpu7:") for c in changes)
