"""Fetch the jars of a Kafka broker and of Spark's Kafka connector: pinned versions, checked hashes.

    python scripts/kafka_jars.py            # into ~/.cache/recension/jars, or the folder RECENSION_JARS names

Maven fetches them by their coordinates. Each is asked for by itself, as `kafka_jars.lock` lists it: Maven
then reads no pom of theirs, so nothing that a pom names (a dependency that does not resolve, a repository of
its own) is in the way. What is there already with the right hash is not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

LOCK = Path(__file__).with_name("kafka_jars.lock")
COPIER = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
WAIT = 600


class NoJarsError(Exception):
    """They cannot be had here; the message says why, in one line."""


def folder(group: str) -> Path:
    """Where the jars of a group lie: ``broker`` or ``connector``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("RECENSION_JARS") or cache / "recension" / "jars") / group


def jars(group: str) -> list[Path]:
    """The jars of a group, if all are there with the hashes of the lock file; `NoJarsError` if not."""
    place = folder(group)
    if missing := [name for name, (_, wanted) in _locked(group).items() if _hash(place / name) != wanted]:
        raise NoJarsError(
            f"{len(missing)} jars, such as {missing[0]}, are not in {place}: run python scripts/kafka_jars.py"
        )
    return [place / name for name in _locked(group)]


def fetch(group: str) -> list[Path]:
    """The jars of a group, fetched as far as they are not there yet."""
    place, locked = folder(group), _locked(group)
    missing = {name: one for name, one in locked.items() if _hash(place / name) != one[1]}
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as arriving:
            _run_maven([coordinates for coordinates, _ in missing.values()], Path(arriving))
            for name, (coordinates, wanted) in missing.items():
                if (found := _hash(Path(arriving) / name)) != wanted:
                    raise NoJarsError(f"{coordinates} has the hash {found}, and {LOCK.name} says {wanted}")
                os.replace(Path(arriving) / name, place / name)
    return [place / name for name in locked]


def _locked(group: str) -> dict[str, tuple[str, str]]:
    """Of each jar of a group, by the name of its file: the coordinates and the hash."""
    found: dict[str, tuple[str, str]] = {}
    section = ""
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and line and not line.startswith("#"):
            digest, coordinates = line.split()
            _, artifact, version = coordinates.split(":")
            found[f"{artifact}-{version}.jar"] = coordinates, digest
    return found


def _hash(file: Path) -> str | None:
    return sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _run_maven(coordinates: list[str], target: Path) -> None:
    """One run for all: the coordinates are the configuration of a project made for it."""
    if (maven := shutil.which("mvn")) is None:
        raise NoJarsError("mvn, which fetches them, is not installed (such as apt-get install maven)")
    items = "".join(
        f"<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        "</artifactItem>"
        for group, artifact, version in (one.split(":") for one in coordinates)
    )
    group, artifact, version, _ = COPIER.split(":")
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>recension</groupId><artifactId>jars</artifactId>"
            "<version>1</version><packaging>pom</packaging><build><plugins><plugin>"
            f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"<configuration><artifactItems>{items}</artifactItems></configuration>"
            "</plugin></plugins></build></project>",
            encoding="utf-8",
        )
        command = [maven, "-B", "-q", COPIER, f"-DoutputDirectory={target}"]
        try:
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=WAIT)
        except subprocess.TimeoutExpired:
            raise NoJarsError(f"mvn gave no answer in {WAIT} s") from None
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise NoJarsError(f"mvn cannot fetch them: {(errors or ['no reason given'])[0]}")


def main() -> int:
    """Fetch both groups; gives the exit code."""
    for group in ("broker", "connector"):
        try:
            found = fetch(group)
        except NoJarsError as why:
            print(f"kafka_jars: no {group}: {why}", file=sys.stderr)
            return 1
        print(f"kafka_jars: {len(found)} jars in {folder(group)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
