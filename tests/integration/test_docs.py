"""What the documentation tells people to type can be typed."""

import re
import shlex
from pathlib import Path

import pytest

from synth import upper
from synth.cli.main import COMMANDS, Parser, _add_json

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md")])
COMMAND = re.compile(r"^\s*(?:\$ |sudo )?((?:\.venv/bin/)?synth [a-z]+\b(?!:)[^#|&>\n]*)", re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Every line inside a fenced block that runs synth, with its page; continuation lines are joined."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```[a-z]*\n(.*?)```", page.read_text().replace("\\\n", " "), re.DOTALL):
            found += [(page.name, match.strip()) for match in COMMAND.findall(block)]
    return found


def test_there_is_something_to_check() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize(("page", "line"), commands())
def test_documented_commands_parse(page: str, line: str) -> None:
    words = shlex.split(line)
    name, rest = words[1], words[2:]
    assert name in COMMANDS, f"{page}: {line}"
    parser = Parser(prog=f"synth {name}", allow_abbrev=False)
    upper.load(COMMANDS[name][0]).configure(parser)
    _add_json(parser)
    if "--help" not in rest and not any("..." in word or word.isupper() for word in rest):
        parser.parse_args(rest)


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
