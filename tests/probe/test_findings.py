import re
from pathlib import Path

from probe.findings import CODES, markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_lists_every_code_as_the_table_has_it():
    assert (ROOT / "docs" / "findings.md").read_text(encoding="utf-8") == markdown()


def test_every_code_in_the_source_is_in_the_table_and_every_code_of_the_table_is_used():
    used = set()
    for file in (ROOT / "probe").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        used |= set(re.findall(r"(?:finding|note|_note)\(\s*\"([a-z0-9-]+)\"", text))
        used |= {code for code in CODES if file.name != "findings.py" and f'"{code}"' in text}
    assert used <= set(CODES)
    assert set(CODES) - used == set()


def test_every_code_says_what_to_do():
    assert all(entry.meaning.endswith(".") and entry.remedy.endswith(".") for entry in CODES.values())
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in CODES)
