"""The connection over which a task asks for its state, ended in such a way that Spark closes its end too.

Up to 4.1.3 and 4.2.0 Spark's server for the state of a task never closes its end of the connection: it
stays in CLOSE_WAIT, one a shard and micro-batch, until the executor has no descriptors left. But what the
server has is closed if it is interrupted while it waits for the next question, and every task that ends
interrupts it. So it is not told that there is nothing more to ask, and our end stays open until then.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, Final

import pyspark
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState

# The first release that closes it by itself.
_MENDED: Final = (4, 2, 1)
# A worker runs one task at a time: what is older than these is of tasks that have ended.
_MOST: Final = 8
_kept: Final[list[Any]] = []


def keep_open(handle: Any) -> None:
    """Keep the connection of a task that begins until Spark has ended it; close those it has ended since."""
    client = getattr(handle, "_statefulProcessorApiClient", None)
    if is_mended(pyspark.__version__) or not hasattr(client, "_client_socket"):
        return
    for old in [old for n, old in enumerate(_kept) if n <= len(_kept) - _MOST or _has_ended(old)]:
        _kept.remove(old)
        _close(old)
    _tell_all_but_the_end(client)
    _kept.append(client)


def is_mended(version: str) -> bool:
    """Does this release of Spark close its end by itself?"""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    return numbers >= _MENDED


def _tell_all_but_the_end(client: Any) -> None:
    tell = client.set_handle_state

    def tell_unless_closed(state: StatefulProcessorHandleState) -> None:
        if state is StatefulProcessorHandleState.CLOSED:
            client.handle_state = state
        else:
            tell(state)

    client.set_handle_state = tell_unless_closed


def _has_ended(client: Any) -> bool:
    """Has Spark closed its end?"""
    try:
        return not client._client_socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _close(client: Any) -> None:
    with suppress(OSError):
        client.sockfile.close()
    client._client_socket.close()
