"""The root of the command: its name, its help, and how it ends.

Exit codes: 0 fine, 1 the check failed, 2 usage or bad input. Errors are one line on standard error,
without a traceback.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from recension.core.errors import RecensionError

STANDARD_OUTPUT: Final = "standard output"
FAILED: Final = 1
BAD_INPUT: Final = 2
_INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141
# The base of all usage errors, which typer keeps in different places from version to version.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[2]

# The module with each command, and what the list of commands says of it: who asks for one, or for that list,
# does not wait until all are loaded.
_COMMANDS: Final = {
    "bench": ("bench", "Compare two runs of the benchmarks (`make bench`), or profile one."),
    "calibrate": (
        "calibrate",
        "Measure costs on this machine, for the choice between eager and lazy coalescing, and store them.",
    ),
    "check": ("streams", "Is the stream valid? Which class R0 to R4 it falls in, and what it holds."),
    "demo": (
        "demo",
        "Replicas of one query that disagree, die and are replaced; one answer, compared with the truth.",
    ),
    "diff": (
        "streams",
        "Do two streams mean the same: are their histories equal, whatever way they came about?",
    ),
    "explain": (
        "query_file",
        "The plan of a query as it will run: columns, known properties, chosen variants, fragments on Spark.",
    ),
    "generate": (
        "generate",
        "Write test streams: inserts with a number and a text, some out of order, some revised, and CTIs.",
    ),
    "history": (
        "streams",
        "The canonical history of a stream: the events left when every retraction is applied.",
    ),
    "inspect": ("inspect", "Look at streams: what came when, what was revised, what is final, and why."),
    "modules": (
        "modules",
        "The modules that installed packages offer, with signatures and documentation.",
    ),
    "repair": (
        "repair",
        "What is still good of a stuck or damaged checkpoint, and how to go on without losing answers.",
    ),
    "run": ("run", "Run a query over stream files. The query file is Python and is executed."),
    "why": (
        "why",
        "Why an answer of a query is what it is: the input events it rests on, and how it came about.",
    ),
}

app = typer.Typer(
    name="recension",
    help="Temporal streams: run queries over them, check them, compare what they mean.",
    epilog="A PATH is a Parquet, JSON Lines, CSV or Arrow file, or a directory of such files. "
    "Exit codes: 0 fine, 1 the check failed, 2 usage or bad input.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    _open_standard_files()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        _refuse_empty(given)
        code = _command(given)(args=arguments, prog_name="recension", standalone_mode=False)
        with name_standard_output():
            sys.stdout.flush()
    except _UsageError as why:
        return _refuse(why.format_message())  # type: ignore[attr-defined]
    except RecensionError as why:
        return _refuse(str(why))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as why:
        # typer ends this way when the reader of our output has gone, and when it has shown a completion.
        if isinstance(why.__context__, BrokenPipeError):
            return _end_unread()
        return why.code if isinstance(why.code, int) else 0
    except BrokenPipeError:
        return _end_unread()
    except OSError as why:
        return _report_os_error(why)
    except MemoryError:
        return _refuse("out of memory: use a machine with more, or smaller batches (--batch-size)")
    except Exception as why:
        if type(why).__name__ == "ArrowCancelled":  # interrupted while Arrow was at work
            return _INTERRUPTED
        raise
    return code if isinstance(code, int) else 0


@contextmanager
def name_standard_output() -> Iterator[None]:
    """Errors of writing to standard output name it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as why:
        raise OSError(why.errno, why.strerror, STANDARD_OUTPUT) from None


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty path: it is the current folder, and mostly a shell variable that is not set."""
    for at, argument in enumerate(arguments):
        if not argument or re.fullmatch(r"--[\w-]+=", argument):
            name = argument or (f"argument {at + 1}" if at else "the command")
            raise RecensionError(f"{name} is empty: give a value")


def load_commands() -> typer.Typer:
    """The root with every command."""
    for module, _ in _COMMANDS.values():
        import_module(f"recension.cli.{module}")
    return app


def _command(arguments: Sequence[str]) -> Any:
    """All commands by name. Only the one that is called is loaded; a shell that completes may ask for any."""
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    if "_RECENSION_COMPLETE" in os.environ:
        load_commands()
    elif called in _COMMANDS:
        import_module(f"recension.cli.{_COMMANDS[called][0]}")
    return _build_command(len(app.registered_commands) + len(app.registered_groups))


@cache
def _build_command(_loaded: int) -> Any:
    """Built anew only when there are more commands than before: it takes longer than many commands do."""
    command: Any = typer.main.get_command(app)
    listed = {name: typer.core.TyperCommand(name, help=about) for name, (_, about) in _COMMANDS.items()}
    command.commands = dict(sorted((listed | command.commands).items()))
    waiting = [command]
    for one in waiting:
        # typer would show ``<bool>`` behind every flag, which takes no value.
        for parameter in one.get_params(typer.Context(one)):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        waiting.extend(getattr(one, "commands", {}).values())
    return command


def _open_standard_files() -> None:
    """Open standard files that the caller has closed, to nowhere; escape text that a terminal cannot show.

    Otherwise the next opened file would get their numbers, and with it the printed text. Standard output
    without a buffer gets one: Python ignores there that a write was cut short, and nobody would see that the
    rest of an answer is lost.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Never closed: it is in use for as long as the process is.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    raw = getattr(sys.stdout, "buffer", None)
    if sys.stdout is sys.__stdout__ and isinstance(raw, io.RawIOBase):
        encoding = getattr(sys.stdout, "encoding", None)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, line_buffering=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _end_unread() -> int:
    """The reader of our output has closed it."""
    _discard_output()
    return _PIPE_CLOSED


def _report_os_error(why: OSError) -> int:
    """Report what the operating system refused, for example a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    from recension.core.formats.files import describe_file_error

    reason = describe_file_error(why)
    return _refuse(f"{why.filename}: {reason}" if why.filename else reason)


def _discard_output() -> None:
    # Neither the interpreter nor a later call must try to flush what nobody takes.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        sys.stdout.flush()


def _refuse(reason: str) -> int:
    print("recension:", " ".join(reason.split()), file=sys.stderr)
    return BAD_INPUT


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(version("recension"))
        except PackageNotFoundError:
            print("unknown")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Temporal streams: run queries over them, check them, compare what they mean."""
    if context.invoked_subcommand is None:
        print(context.get_help())
