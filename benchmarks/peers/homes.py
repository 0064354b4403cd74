"""The environments of the peers under .peers, and how a script is started in one."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.peer_jars import folder

ROOT = Path(__file__).parent.parent.parent
HOMES = ROOT / ".peers"


class NotInstalledError(Exception):
    """The peer has no environment here."""


@dataclass(frozen=True)
class Start:
    """A command, and the environment variables that it needs."""

    command: list[str]
    environment: dict[str, str]


def start(home: str, script: Path, homes: Path = HOMES) -> Start:
    """How a script is started in the environment of a peer; without a name, in this one."""
    python = homes / home / "bin" / "python" if home else Path(sys.executable)
    if not python.exists():
        raise NotInstalledError(f"not installed in {homes}")
    jars = folder("flink")
    paths = {
        # A peer gets the scripts alone: our library needs versions that its own may not agree with.
        "PYTHONPATH": str(ROOT) if home else f"{ROOT / 'src'}:{ROOT}",
        "FLINK_JARS": str(jars),
        "HADOOP_CLASSPATH": ":".join(map(str, jars.glob("*hadoop*.jar"))),
    }
    # The folder of the script is no place to import from: modules there have the names of others.
    return Start([str(python), "-P", str(script)], os.environ | paths)
