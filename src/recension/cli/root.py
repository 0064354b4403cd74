"""The root of the command: its name, its help, and how it ends.

Exit codes: 0 fine, 1 the check failed, 2 usage or bad input. What goes wrong is said in one line on
standard error, without a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Final

import typer

from recension.core.errors import RecensionError

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
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    try:
        code = app(args=arguments, prog_name="recension", standalone_mode=False)
        sys.stdout.flush()
    except _UsageError as why:
        return _refused(why.format_message())  # type: ignore[attr-defined]
    except RecensionError as why:
        return _refused(str(why))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader of our output has gone (typer turns that into an exit). Nothing is left to be said,
        # and the interpreter must not try to flush what nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except (OSError, MemoryError) as why:
        return _refused(str(why) or type(why).__name__)
    return code if isinstance(code, int) else 0


def _refused(reason: str) -> int:
    print("recension:", " ".join(reason.split()), file=sys.stderr)
    return BAD_INPUT


def _print_version(is_asked: bool) -> None:
    if is_asked:
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
