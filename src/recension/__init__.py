"""Temporal streams for Spark pipelines.

All names are in `recension.api.names`, and loaded with the first that is asked for: who starts a command, or
a worker, imports this package and needs other parts of it.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from recension.api.functions import *  # noqa: F403
    from recension.api.names import *  # noqa: F403
    from recension.api.names import __all__ as __all__

else:  # to a type checker, what is not there is not here
    # Loaded when they are asked for themselves: who only writes a query needs no engine.
    _LATER = {
        "Recording": "recension.runners.recording",
        "Result": "recension.runners.result",
        "Session": "recension.runners.local",
        "read_recording": "recension.runners.recording",
        "record": "recension.api.running",
        "run": "recension.api.running",
        "session": "recension.api.running",
        "why": "recension.api.why",
    }

    def __getattr__(name: str) -> object:
        if name.startswith("__") and name != "__all__":  # asked for by tools
            raise AttributeError(f"recension has no {name!r}")
        names = _import_module("recension.api.names")
        globals().update({own: vars(names)[own] for own in names.__all__ if own in vars(names)})
        if name == "__all__":
            return names.__all__
        if name in ("kafka", "spark"):  # load what most programs that import this do not need
            return _import_module(f"recension.api.{name}")
        if name in _LATER:
            return globals().setdefault(name, getattr(_import_module(_LATER[name]), name))
        if name in globals():
            return globals()[name]
        from difflib import get_close_matches

        near = get_close_matches(name, names.__all__, n=1)
        raise AttributeError(f"recension has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def __dir__() -> list[str]:
    """Only what is meant for users: completion shows no internals."""
    return sorted(_import_module("recension.api.names").__all__)
