import re
from pathlib import Path

from synth.cli.export import FORMATS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/formats.md").read_text()


def test_every_rule_of_the_xml_verifier_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "synth/formats/msccl_xml").glob("*.py"))
    used = set(re.findall(r'rule="([a-z-]+)"', sources))
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE.partition("## MSCCL XML")[2], re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert used == documented


def test_every_format_is_documented() -> None:
    for name in FORMATS:
        assert re.search(rf"--to {name}\b", PAGE), name
