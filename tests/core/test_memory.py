"""The memory of stores: sizes as text, pieces in files, and what is refused."""

from __future__ import annotations

import errno
import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recension.core import memory
from recension.core.errors import RecensionError
from recension.core.memory_pool import MemoryPool, open_pool, parse_size

MB = 10**6


@pytest.fixture
def pool(tmp_path: Path) -> MemoryPool:
    return MemoryPool(0, tmp_path)


def _count(pool: MemoryPool) -> tuple[int, int]:
    use = pool.measure()
    return use.resident_bytes, use.spilled_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512 * MB), ("2GiB", 2 << 30), (" 1.5 gb ", 1500 * MB), ("64 kib", 65536), ("7", 7), (9, 9)],
)
def test_sizes_are_written_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "12 parsecs", "-5MB", "1,5GB", "1e9", None, True, 2.5])
def test_other_sizes_are_refused_in_one_line(text: Any) -> None:
    with pytest.raises(RecensionError, match='"512MB" or "2GiB"') as refused:
        parse_size(text)
    assert "\n" not in str(refused.value)


def test_bad_arguments_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, message in [
        ((None, tmp_path), 'such as memory="512MB"'),
        (("15MB", tmp_path), "at least 16MB, not '15MB'"),
        (("1GB", tmp_path / "nowhere"), "no directory"),
        (("1GB", Path(__file__)), "no directory"),
    ]:
        with pytest.raises(RecensionError, match=message):
            open_pool(*given)
    assert open_pool(None) is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RecensionError, match="not writable"):
        open_pool("1GB", tmp_path)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no tmpfs to try")
def test_a_directory_in_memory_is_refused() -> None:
    with pytest.raises(RecensionError, match=r"itself in memory \(tmpfs\)"):
        open_pool("1GB", "/dev/shm")


def test_without_a_pool_memory_is_plain() -> None:
    assert memory.empty((3, 2), np.int64).shape == (3, 2)
    assert memory.full(4, -1, np.int64).tolist() == [-1] * 4
    columns = {"a": np.arange(3)}
    assert memory.keep_columns(columns) is columns
    assert memory.copy_columns(columns)["a"] is not columns["a"]


def test_the_first_half_is_plain_memory(tmp_path: Path) -> None:
    pool = MemoryPool(20 * MB, tmp_path)
    first = pool.allocate(9 * MB)
    assert _count(pool) == (9 * MB, 0)
    second = pool.allocate(2 * MB)
    assert pool.measure().spilled_bytes >= 2 * MB
    assert "outgrown half of its memory of 20 MB" in (pool.take_warning() or "")
    assert pool.take_warning() is None
    del first
    assert _count(pool)[1] >= 2 * MB
    third = pool.allocate(2 * MB)  # there is plain memory again
    assert pool.measure().spilled_bytes < 3 * MB
    assert len(second) == len(third)


def test_what_is_in_files_leaves_and_comes_back(pool: MemoryPool, tmp_path: Path) -> None:
    with pool.use():
        numbers = memory.empty(4 << 20, np.int64)
        numbers[:] = np.arange(len(numbers))
    resident, spilled = _count(pool)
    assert (resident, spilled) == (0, numbers.nbytes)
    assert [int(file.count_resident().sum()) for file in pool._files.values()] == [0]
    assert list(tmp_path.iterdir()) == []  # files without a name
    assert np.array_equal(numbers, np.arange(len(numbers)))
    numbers[7] = -7
    assert _count(pool)[0] == 0
    assert numbers[7] == -7


def test_room_is_used_again_when_the_last_view_is_gone(pool: MemoryPool) -> None:
    with pool.use():
        array = memory.empty((1000, 10), np.int64)
    view = array[5:].T[2:]
    place = array.ctypes.data
    del array
    assert pool.measure().spilled_bytes == 81920
    view[:] = 1
    with pool.use():
        assert memory.empty((1000, 10), np.int64).ctypes.data != place
    del view
    with pool.use():
        again = memory.empty((1000, 10), np.int64)
    assert again.ctypes.data in (place, place + 81920)
    del again
    assert pool.measure().spilled_bytes == 0


def test_a_long_piece_has_its_own_file_which_goes_with_it(pool: MemoryPool) -> None:
    gc.collect()
    files = _unlinked_files()
    pieces = [pool.allocate(40 * MB) for _ in range(3)]
    assert _unlinked_files() == files + 3
    del pieces
    assert pool.measure().spilled_bytes == 0
    gc.collect()
    assert _unlinked_files() == files


def _unlinked_files() -> int:
    """How many files this process has open that have no name any more."""
    links = (Path("/proc/self/fd") / number for number in os.listdir("/proc/self/fd"))
    return sum(link.is_symlink() and str(link.readlink()).endswith("(deleted)") for link in links)


def test_pieces_do_not_overlap(pool: MemoryPool) -> None:
    draw = np.random.default_rng(3)
    held: list[tuple[int, np.ndarray[Any, Any]]] = []
    for number in range(2000):
        piece = pool.allocate(int(draw.integers(4096, 200_000)))
        piece[:] = number % 251
        held.append((number % 251, piece))
        if len(held) > 50:
            value, gone = held.pop(int(draw.integers(50)))
            assert bool((gone == value).all())
            del gone
    assert all(bool((piece == value).all()) for value, piece in held)


def test_another_thread_may_let_go(pool: MemoryPool) -> None:
    pieces = [pool.allocate(8192) for _ in range(100)]
    thread = threading.Thread(target=pieces.clear)
    thread.start()
    thread.join()
    assert pool.measure().spilled_bytes == 0


def test_rows_of_any_type_are_kept(pool: MemoryPool) -> None:
    table = pa.table(
        {
            "text": pa.array(["a", None, "ccc"] * 4000),
            "word": pa.array(["x", "y", None] * 4000).dictionary_encode(),
            "list": pa.array([[1], None, [2, 3]] * 4000),
            "time": pa.array([0, 1, None] * 4000, pa.timestamp("us", "UTC")),
        }
    )
    batch = table.to_batches()[0].slice(5, 9000)
    with pool.use():
        kept = memory.keep_batch(batch)
    assert kept.equals(batch)
    assert pool.measure().spilled_bytes >= batch.nbytes
    del kept
    assert pool.measure().spilled_bytes == 0


def test_what_is_kept_is_not_copied_again(pool: MemoryPool) -> None:
    with pool.use():
        kept = memory.keep_columns({"a": np.arange(1000), "b": np.ones(1000, np.bool_)})
        assert memory.keep_columns(kept) is kept
        part = {name: column[100:] for name, column in kept.items()}
        assert memory.keep_columns(part) is part


def test_a_full_disk_is_one_line(pool: MemoryPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(RecensionError, match="No space left on device; make room there") as refused:
        pool.allocate(1 * MB)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)
    monkeypatch.undo()
    assert len(pool.allocate(1 * MB)) == MB


def test_where_nobody_can_tell_all_counts_as_resident(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError

    piece = pool.allocate(1 * MB)
    piece[:] = 1
    monkeypatch.setattr("builtins.open", refuse)
    assert _count(pool)[0] == 0
    monkeypatch.undo()
    assert int(piece.sum()) == MB
