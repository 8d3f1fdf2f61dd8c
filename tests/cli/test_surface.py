"""The public surface, and what importing it costs in other packages."""

import subprocess
import sys
from types import ModuleType

import pytest

import synth
from synth import upper
from synth.cli.main import COMMANDS
from synth.errors import InvalidUsage, SynthError

HEAVY = {"fastapi", "pydantic", "sqlalchemy", "pulp", "highspy", "cupy", "torch", "mpi4py", "networkx", "scipy"}


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_all_is_sorted_and_resolves() -> None:
    assert synth.__all__ == sorted(synth.__all__)
    for name in synth.__all__:
        assert getattr(synth, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        synth.nothing  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import synth; synth.Topology; synth.Plan; synth.load; synth.verify; synth.simulate; synth.catalog",
        "from synth.cli.main import main; main(['--help'])",
        "from synth.cli.main import main; main(['topo', 'list'])",
        "import synth.client",
    ],
)
def test_the_core_imports_nothing_heavy(code: str) -> None:
    assert not HEAVY & {name.partition(".")[0] for name in modules_after(code)}


def test_help_needs_not_even_numpy() -> None:
    assert "numpy" not in modules_after("from synth.cli.main import main; main(['--help'])")


def test_commands_are_the_published_ones() -> None:
    assert list(COMMANDS) == (
        [
            "probe",
            "topo",
            "bound",
            "solve",
            "check",
            "simulate",
            "plan",
            "groups",
            "place",
            "export",
            "import",
            "serve",
            "run",
            "bench",
            "demo",
        ]
    )


def test_every_command_has_its_module_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, (module, summary) in COMMANDS.items():
        command = upper.load(module)
        assert callable(command.configure), name
        assert callable(command.run), name
        assert summary


def test_a_folder_in_the_way_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("training")
    (folder / "runtime").mkdir()
    (folder / "runtime" / "__init__.py").write_text("")
    script = f"import sys; sys.path.insert(0, {str(folder)!r})\nimport synth\nsynth.attach()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "InvalidUsage" in done.stderr
    assert str(folder / "runtime") in done.stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'pulp'", name="pulp")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(InvalidUsage, match="'pulp' is not installed; install synth with its extra solver"):
        upper.load("solver.portfolio")


def test_errors_have_distinct_stable_codes() -> None:
    def leaves(kind: type[SynthError]) -> list[type[SynthError]]:
        return [kind, *(leaf for below in kind.__subclasses__() for leaf in leaves(below))]

    codes = [kind.code for kind in leaves(SynthError)]
    assert len(codes) == len(set(codes))
