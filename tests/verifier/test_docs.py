import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_rule_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "synth/verifier").glob("*.py"))
    used = set(re.findall(r'rule="([a-z-]+)"', sources)) | set(re.findall(r'_violation\(plan, t, "([a-z-]+)"', sources))
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs/verify.md").read_text(), re.MULTILINE))
    assert used == documented
