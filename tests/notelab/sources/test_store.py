"""The store: content under its own id, whatever happens to the disk."""

import multiprocessing
import subprocess
from pathlib import Path

from notelab.sources.store import Store, blob_id


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_a_blob_has_the_id_that_git_gives_it() -> None:
    data = b"a line\n\xff\0"
    identity = subprocess.run(
        ["git", "hash-object", "--stdin"], input=data, capture_output=True, check=True
    )
    assert blob_id(data) == identity.stdout.decode().strip()


def test_what_was_put_is_got_and_nothing_else_is_left(tmp_path: Path) -> None:
    store = Store(tmp_path)
    blob = store.put(b"text\n")
    assert store.get(blob) == b"text\n"
    assert store.get("0" * 40) is None
    assert len(_files(tmp_path)) == 1


def test_a_scratch_file_of_a_process_that_died_harms_nobody(tmp_path: Path) -> None:
    store = Store(tmp_path)
    blob = blob_id(b"text\n")
    folder = tmp_path / "blobs" / blob[:2]
    folder.mkdir(parents=True)
    (folder / f".{blob[2:]}.1.dead.new").write_bytes(b"te")
    assert store.get(blob) is None
    assert store.put(b"text\n") == blob
    assert store.get(blob) == b"text\n"


def _put_many(root: Path) -> None:
    store = Store(root)
    for number in range(50):
        assert store.get(store.put(b"%d\n" % number * 1000)) is not None


def test_writers_at_once_leave_every_file_whole(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_put_many, args=(tmp_path,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    for number in range(50):
        data = b"%d\n" % number * 1000
        assert Store(tmp_path).get(blob_id(data)) == data
    assert len(_files(tmp_path)) == 50
