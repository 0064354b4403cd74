"""The library on executors that do not have it: each way of shipping that the guide names, on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles
from tests.runners.spark.standalone import HOME, Standalone, running_cluster
from tests.short_sessions import INTERPRETED, SHORT_LIVED

import recension as rc
from recension.runners.spark.session import require_interpreter, show_py_files

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("shipped.py")
WAIT = 600
# A few rows, once: Java compiles lightly, and Spark not at all.
SHORT = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    **INTERPRETED,
}
SETTINGS = [f"{name}={value}" for name, value in SHORT.items()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=1) as found:
        yield found


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as a zip, made as the guide says."""
    file = tmp_path_factory.mktemp("zip") / "recension.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for part in sorted((ROOT / "src" / "recension").rglob("*.py")):
            archive.write(part, part.relative_to(ROOT / "src"))
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(place), str(ROOT)], check=True, capture_output=True)
    (found,) = place.glob("recension-*.whl")
    return found


def environment(folder: Path, wheel: Path | None = None) -> Path:
    """An environment with all packages of this one; the library comes from a wheel, or it has none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    mine = [path for path in sys.path if path.endswith("site-packages")]
    # In a folder that is named in such a file, Python reads no further ones: editable installs stay out.
    (packages / "packages.pth").write_text("\n".join(mine))
    if wheel is not None:
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(folder / "bin" / "python")]
        subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    python = folder / "bin" / "python"
    has = subprocess.run([python, "-c", "import recension"], cwd=folder, env={}, capture_output=True)
    if has.returncode == 0 and wheel is None:
        pytest.skip("the library is installed here as a package: no environment is without it")
    return python


def run(python: Path | str, command: list[Any], folder: Path, **variables: str) -> dict[str, Any]:
    """What the program found. It has no path of ours, and what it starts has none."""
    kept = {name: own for name, own in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept |= {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        **variables,
    }
    done = subprocess.run(
        [*map(str, command), *SETTINGS], cwd=folder, env=kept, capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert found["batch"] == found["stream"] == found["local"] != []
    assert found["daemon"] is None  # ours is loaded before anything that was shipped
    return found


def test_python_files_with_spark_submit(cluster: Standalone, zipped: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "bare")
    submit = [HOME / "bin" / "spark-submit", "--master", cluster.master, "--py-files", zipped]
    java = ["--driver-java-options", SHORT_LIVED]
    found = run(python, [*submit, *java, PROGRAM, cluster.master, tmp_path], tmp_path)
    assert "recension.zip" in found["driver"]
    assert all("worker-" in file and "recension.zip" in file for file in found["tasks"])


@pytest.mark.soak
def test_a_zip_on_the_path(cluster: Standalone, zipped: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "bare")
    setting = f"spark.executorEnv.PYTHONPATH={zipped}"
    command = [python, PROGRAM, cluster.master, tmp_path, setting]
    found = run(python, command, tmp_path, PYTHONPATH=str(zipped))
    assert all(file.startswith(str(zipped)) for file in [found["driver"], *found["tasks"]])


@pytest.mark.soak
def test_a_wheel_that_is_installed(cluster: Standalone, wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "installed", wheel)
    found = run(python, [python, PROGRAM, cluster.master, tmp_path], tmp_path)
    assert all(file.startswith(str(tmp_path / "installed")) for file in [found["driver"], *found["tasks"]])


@pytest.mark.soak
def test_an_archive_of_an_environment(cluster: Standalone, wheel: Path, tmp_path: Path) -> None:
    environment(tmp_path / "packed", wheel)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "packed", ".")
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="fully_trusted")  # where the driver starts
    setting = f"spark.archives={tmp_path / 'environment.tar.gz'}#environment"
    python = "./environment/bin/python"
    found = run(python, [python, PROGRAM, cluster.master, tmp_path, setting], tmp_path)
    assert found["driver"].startswith(str(tmp_path / "environment"))
    assert all("worker-" in file and "environment" in file for file in found["tasks"])


def test_an_interpreter_that_the_driver_lacks_is_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "./environment/bin/python")
    with pytest.raises(
        rc.RecensionError, match=r"PYSPARK_PYTHON is ./environment/bin/python, which is not here"
    ):
        require_interpreter(spark.sparkContext)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    require_interpreter(spark.sparkContext)


def test_python_files_are_on_the_path_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark puts what `addPyFile` ships into one folder, and packages in it on the path of the driver."""
    context, shipped = spark.sparkContext, tmp_path / "recension.zip"
    shipped.touch()
    monkeypatch.setattr(context, "environment", {"PYTHONPATH": "/own"})
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    show_py_files(context)
    assert context.environment == {"PYTHONPATH": "/own"}
    monkeypatch.setattr(sys, "path", [str(shipped), *sys.path])
    for _ in range(2):
        show_py_files(context)
        assert context.environment == {"PYTHONPATH": f"/own{os.pathsep}{shipped}"}
