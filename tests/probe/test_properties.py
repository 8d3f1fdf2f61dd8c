"""A machine printed as a matrix is read back equal, whatever happened to the text; nothing makes the probe crash."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe import build, facts_document
from probe.sources import lstopo, nccl_xml, nvidia_smi, sniff
from synth import documents, topology
from synth.errors import CaptureError
from synth.topology import Routes
from tests.probe.captures import TOPO, capture, needs_captures
from tests.probe.machines import Machine, machines, printed

WORDS = [
    "tabs", "spaces", "single", "ansi", "lost", "crlf", "shuffled", "mixed", "wrapped", "html", "prompt", "legend",
    "noaffinity", "norows",
]  # fmt: skip


def without_nic_pairs(machine: Machine) -> dict[tuple[str, str], object]:
    return {pair: path for pair, path in machine.paths().items() if not all(n.startswith("NIC") for n in pair)}


@given(machines(), st.sets(st.sampled_from(WORDS)), st.integers(0, 99))
@settings(deadline=None, max_examples=80)
def test_a_printed_machine_is_read_back_equal(machine, style, seed):
    facts = nvidia_smi.read(printed(machine, style=" ".join(sorted(style)), seed=seed))
    assert [gpu.name for gpu in facts.gpus] == machine.names[: machine.gpus]
    assert [nic.name for nic in facts.nics] == machine.names[machine.gpus :]
    expected = without_nic_pairs(machine) if "norows" in style else machine.paths()
    assert dict(facts.paths) == expected
    if "noaffinity" not in style:
        assert [gpu.numa for gpu in facts.gpus] == [machine.home[i][0] for i in range(machine.gpus)]


@given(machines())
@settings(deadline=None, max_examples=60)
def test_what_is_built_is_connected_and_survives_its_document(machine):
    built = build.topology(nvidia_smi.read(printed(machine, style="tabs", seed=0)))
    Routes.among(built).require_connected()
    assert topology.from_document(topology.to_document(built)) == built


@given(machines(), st.randoms(use_true_random=False), st.integers(1, 12))
@settings(deadline=None, max_examples=80)
def test_damaged_matrices_raise_nothing_but_the_probes_own_error(machine, rng, hits):
    text = list(printed(machine, style="tabs legend", seed=0))
    for _ in range(hits):
        spot = rng.randrange(len(text))
        match rng.randrange(4):
            case 0:
                del text[spot : spot + rng.randrange(1, 40)]
            case 1:
                text.insert(spot, rng.choice("\t\n X0123456789NV.GPU\x1b[m…<>"))
            case 2:
                text[spot] = rng.choice("\t\n X9NVSYOK-,:")
            case _:
                text[spot:spot] = text[: rng.randrange(60)]
        text = text or ["\n"]
    attempt("".join(text).encode())


VOCABULARY = [
    "GPU0", "GPU1", "GPU2", "NIC0", "mlx5_0", "X", "NV12", "NV18", "NV120-31", "SYS", "NODE", "PIX", "OK", "CNS", "N/A",
    "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "0-31", "0", "\t", "\n", " ", "...", "Legend:", "\x1b[4m", "[0m",
    "GPU 0: NVIDIA H100 80GB HBM3", "Link 0: 25 GB/s", "Link 1: <inactive>", "NIC0: mlx5_0", "P2P:", "Machine (P#0",
    "GPU/4E000 :GPU/0-4e000 (0/5000.0/LOC)", "<system version=\"1\">", "</system>", "<cpu numaid=\"0\">", "</cpu>",
    "<pci busid=\"0000:00:06.0\" class=\"0x030200\">", "<gpu dev=\"0\" sm=\"90\">", "</gpu>", "</pci>", "<topology>",
    "<nvlink target=\"0000:00:06.0\" count=\"2\"/>", "<object type=\"PCIDev\" pci_type=\"0302 [10de:2330]\">",
]  # fmt: skip


@given(st.lists(st.sampled_from(VOCABULARY) | st.text(max_size=4), max_size=60))
@settings(deadline=None, max_examples=150)
def test_words_in_any_order_raise_nothing_but_the_probes_own_error(words):
    attempt("".join(words).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_bytes_raise_nothing_but_the_probes_own_error(data):
    attempt(data)
    for reader in (nccl_xml.read, lstopo.read):
        with pytest.raises(CaptureError):
            reader(data)


@needs_captures
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=80)
def test_damaged_captures_raise_nothing_but_the_probes_own_error(number, rng):
    files = sorted(TOPO.iterdir())
    data = bytearray(files[number % len(files)].read_bytes())
    for _ in range(rng.randrange(1, 6)):
        spot = rng.randrange(len(data) + 1)
        if rng.random() < 0.5:
            del data[spot : spot + rng.randrange(1, 200)]
        else:
            data[spot:spot] = bytes(rng.choice(b'\t\n X09NV-,"<>/') for _ in range(rng.randrange(1, 8)))
    attempt(bytes(data))


def attempt(data: bytes) -> None:
    """Read and build; only the probe's own error, in one line, may come out."""
    try:
        built = build.topology(sniff.read(data, subject="capture"))
    except CaptureError as error:
        message = error.message
    else:
        message = "x"
        Routes.among(built).require_connected()
    assert message
    assert "\n" not in message


def test_damage_is_the_same_for_the_same_seed():
    machine = Machine(2, 1, ((0, 0, 0), (0, 0, 1), (0, 0, 0)))
    assert printed(machine, style="shuffled", seed=3) == printed(machine, style="shuffled", seed=3)


@needs_captures
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=80)
def test_damaged_facts_raise_nothing_but_the_probes_own_error(number, rng):
    files = [capture("222"), capture("025"), capture("060"), capture("230")]
    facts = sniff.read(files[number % len(files)].read_bytes(), subject="x")
    document = facts_document.to_document(facts)
    for _ in range(rng.randrange(1, 4)):
        spoil(document, rng)
    attempt(documents.canonical(document).encode())


def spoil(value, rng) -> None:
    """Replace or drop one value somewhere in a JSON document."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.9:
            value = value[key]
            continue
        if isinstance(value, dict) and rng.random() < 0.3:
            del value[key]
        else:
            value[key] = rng.choice([None, "", "GPU0", -1, 0, 1e300, 10**30, True, [], {}, [1], "nvswitch"])
        return
