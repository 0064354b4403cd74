"""The root of the command: its name, its help, and how it ends.

Exit codes: 0 fine, 1 the check failed, 2 usage or bad input. Errors are one line on standard error,
without a traceback.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final

import pyarrow as pa
import typer
import typer.main

from recension.cli.outputs import StandardOutput
from recension.core.errors import RecensionError
from recension.core.formats.files import describe_file_error

FAILED: Final = 1
BAD_INPUT: Final = 2
_INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141
# The base of all usage errors, which typer keeps in different places from version to version.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="recension",
    help="Temporal streams: run queries over them, check them, compare what they mean.",
    epilog="A PATH is a Parquet, JSON Lines, CSV or Arrow file, or a directory of such files. "
    "Exit codes: 0 fine, 1 the check failed, 2 usage or bad input.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    _open_standard_files()
    try:
        _refuse_empty(sys.argv[1:] if arguments is None else arguments)
        code = _command()(args=arguments, prog_name="recension", standalone_mode=False)
        StandardOutput()  # flushes what was printed
    except _UsageError as why:
        return _refuse(why.format_message())  # type: ignore[attr-defined]
    except RecensionError as why:
        return _refuse(str(why))
    except (KeyboardInterrupt, pa.ArrowCancelled):
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
        return _refuse("out of memory: give the machine more, or the command smaller pieces (--batch-size)")
    return code if isinstance(code, int) else 0


def _refuse_empty(arguments: Sequence[str]) -> None:
    """An empty path would be the current folder: mostly a variable of the shell that is not set."""
    for at, argument in enumerate(arguments):
        if not argument or re.fullmatch(r"--[\w-]+=", argument):
            name = argument or (f"argument {at + 1}" if at else "the command")
            raise RecensionError(f"{name} is empty: give a value")


@cache
def _command() -> Any:
    """All commands by name; typer would show ``<bool>`` behind every flag, which takes no value."""
    command: Any = typer.main.get_command(app)
    command.commands = dict(sorted(command.commands.items()))
    waiting = [command]
    for one in waiting:
        for parameter in one.get_params(typer.Context(one)):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        waiting.extend(getattr(one, "commands", {}).values())
    return command


def _open_standard_files() -> None:
    """Standard files that the caller has closed lead nowhere, and text that a terminal lacks is escaped.

    Otherwise the next file that is opened would take their numbers, and get what is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Never closed: it is in use for as long as the process is.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _end_unread() -> int:
    """The reader of our output has gone."""
    _discard_output()
    return _PIPE_CLOSED


def _report_os_error(why: OSError) -> int:
    """What the operating system refused, a full disk for one."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    reason = describe_file_error(why)
    return _refuse(f"{why.filename}: {reason}" if why.filename else reason)


def _discard_output() -> None:
    # The interpreter must not try to flush what nobody takes.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(reason: str) -> int:
    print("recension:", " ".join(reason.split()), file=sys.stderr)
    return BAD_INPUT


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
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
