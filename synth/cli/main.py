"""The command line: finds the subcommand's module, runs it, prints its answer.

Exit status: 0 success, 1 a negative answer, 2 bad input (one line on stderr), 70 a fault of synth's own,
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from synth import __version__, upper
from synth.documents import canonical
from synth.errors import InputError, InvalidUsage, LimitError, SynthError

COMMANDS: dict[str, tuple[str, str]] = {
    "probe": ("probe.cli", "read this node's topology, or a capture of one"),
    "topo": ("synth.cli.topo", "list, show, merge, degrade or compare topologies"),
    "bound": ("solver.cli.bound", "the least time any schedule can take, with its proof"),
    "solve": ("solver.cli.solve", "synthesize a plan"),
    "check": ("synth.cli.check", "check a plan against every rule"),
    "simulate": ("synth.cli.simulate", "price a plan"),
    "plan": ("synth.cli.plan", "expand or slice a plan"),
    "groups": ("solver.cli.groups", "partition GPUs into expert-parallel groups"),
    "place": ("solver.cli.place", "place experts on ranks"),
    "export": ("synth.cli.export", "write a plan in another system's format"),
    "import": ("synth.cli.import_", "read a plan from another system's format"),
    "serve": ("server.cli", "run the HTTP service"),
    "run": ("runtime.cli.run", "carry a plan out on this machine"),
    "bench": ("runtime.cli.bench", "time collectives the way nccl-tests does"),
    "demo": ("synth.cli.demo", "the whole path on a real capture, in under a minute"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        raise InputError(f"{self.prog}: {message}; see '{self.prog} --help'", subject=self.prog)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _dispatch(words)
        sys.stdout.flush()
        return status
    except (InputError, InvalidUsage) as error:
        return _complain(error.message, 2)
    except SynthError as error:
        return _complain(error.message, 1)
    except BrokenPipeError:
        # the reader went away; keep Python from complaining again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain(LimitError("the input needs more memory than this machine has").message, 2)
    except Exception as error:
        if os.environ.get("SYNTH_DEBUG"):
            raise
        return _complain(
            f"internal error ({type(error).__name__}: {error}); this is a fault of synth; "
            "set SYNTH_DEBUG=1 for the traceback",
            70,
        )


def _complain(message: str, status: int) -> int:
    print("synth: " + " ".join(message.split()), file=sys.stderr)
    return status


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-V", "--version"):
        print(f"synth {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise InputError(f"{name}: is not a command; the commands are {', '.join(COMMANDS)}", subject=name)
    module, summary = COMMANDS[name]
    command = upper.load(module)
    parser = Parser(prog=f"synth {name}", description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False)
    command.configure(parser)
    _add_json(parser)
    args = parser.parse_args(rest)
    answer = command.run(args)
    print(canonical(answer.document) if args.json else answer.text)
    return int(answer.exit)


def _add_json(parser: argparse.ArgumentParser) -> None:
    """Give the parser, and every subcommand below it, ``--json``."""
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in subparsers:
        for below in action.choices.values():
            _add_json(below)
    if not subparsers:
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")


def _help() -> str:
    rows = "\n".join(f"  {name:<9} {summary}" for name, (_, summary) in COMMANDS.items())
    return (
        "usage: synth COMMAND [options]\n\n"
        "Topology-aware synthesis of collective schedules for GPU clusters.\n\n"
        f"{rows}\n\n"
        "'synth COMMAND --help' says more; every command takes --json. A topology is a file or a catalog name\n"
        "('synth topo list'). Exit status: 0 success, 1 a negative answer, 2 bad input."
    )


if __name__ == "__main__":
    sys.exit(main())
