"""Jars that tests and examples need, fetched by Maven: pinned versions, checked hashes.

A lock file lists them by group: ``[broker]``, or ``[delta 4.1]`` for jars that fit one Spark only; a group is
then the one for the Spark that is installed. Maven is asked for each jar by itself: it then reads no pom of
theirs, so nothing that a pom names (a dependency that does not resolve, a repository of its own) is in the
way. What is there already with the right hash is not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COPIER = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
WAIT = 600


class NoJarsError(Exception):
    """They cannot be had here; the message says why, in one line."""


@dataclass(frozen=True)
class LockedJars:
    """The jars of one lock file; the script of the same name fetches them."""

    lock: Path

    def folder(self, group: str) -> Path:
        """Where its jars lie: under ~/.cache/recension/jars, or the folder that RECENSION_JARS names."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return Path(os.environ.get("RECENSION_JARS") or cache / "recension" / "jars") / group

    def jars(self, group: str) -> list[Path]:
        """The jars of a group, if all are there with the hashes of the lock file; `NoJarsError` if not."""
        place, locked = self.folder(group), self.locked(group)
        if missing := [name for name, (_, wanted) in locked.items() if _hash(place / name) != wanted]:
            script = f"python -m scripts.{self.lock.stem} {group}"
            raise NoJarsError(f"{len(missing)} jars, such as {missing[0]}, are not in {place}: run {script}")
        return [place / name for name in locked]

    def fetch(self, group: str) -> list[Path]:
        """The jars of a group, fetched as far as they are not there yet."""
        place, locked = self.folder(group), self.locked(group)
        missing = {name: one for name, one in locked.items() if _hash(place / name) != one[1]}
        if missing:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as arriving:
                _run_maven([coordinates for coordinates, _ in missing.values()], Path(arriving))
                for name, (coordinates, wanted) in missing.items():
                    if (found := _hash(Path(arriving) / name)) != wanted:
                        raise NoJarsError(
                            f"{coordinates} has the hash {found}, and {self.lock.name} says {wanted}"
                        )
                    os.replace(Path(arriving) / name, place / name)
        return [place / name for name in locked]

    def run(self, groups: Sequence[str]) -> int:
        """Fetch groups, each whatever becomes of the others; gives the exit code."""
        code = 0
        for group in groups:
            try:
                print(f"{self.lock.stem}: {len(self.fetch(group))} jars in {self.folder(group)}")
            except NoJarsError as why:
                print(f"{self.lock.stem}: no {group}: {why}", file=sys.stderr)
                code = 1
        return code

    def locked(self, group: str) -> dict[str, tuple[str, str]]:
        """Of each jar of a group, by the name of its file: the coordinates and the hash."""
        found: dict[str, tuple[str, str]] = {}
        fitting: list[str] = []
        section = ""
        is_wanted = False
        for line in self.lock.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                section, *sparks = line.strip("[]").split()
                is_wanted = section == group and (not sparks or spark_version() in sparks)
                fitting += sparks if section == group else []
            elif is_wanted and line and not line.startswith("#"):
                digest, coordinates = line.split()
                _, artifact, number = coordinates.split(":")
                found[f"{artifact}-{number}.jar"] = coordinates, digest
        if not found:
            has = f"only for Spark {' and '.join(fitting)}" if fitting else "in no line of the file"
            raise NoJarsError(f"{self.lock.name} has {group} {has}; Spark here: {spark_version() or 'none'}")
        return found


def spark_version() -> str:
    """The Spark that is installed, such as 4.1; nothing if there is none."""
    try:
        return ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        return ""


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
