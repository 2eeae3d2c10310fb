"""How the ranks of a shared-memory link agree on one file, through their store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shardlab.comm.faults import Store
from shardlab.comm.host import ProcessInfo
from shardlab.comm.pending import CollectiveError


class Rendezvous:
    """One rendezvous, through a store that may hold the keys of an earlier one.

    A file's name is random, and it is removed when the rendezvous is over. A stale "file" key names
    no file, and a rank that reads one reads again. "open" keys contain the file's name, because a
    rank may be in the next rendezvous while another rank still reads the keys of this one.

    Args:
        store: a store whose keys "file" and "open/…" only this link uses.
        ranks: the members' global ranks, for errors.
        me: this rank's index among them; rank 0 makes the file.
        timeout: seconds to wait for the other ranks.
    """

    def __init__(self, store: Store, ranks: Sequence[int], me: int, timeout: float) -> None:
        self._store = store
        self._ranks = ranks
        self._me = me
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._process = ProcessInfo.current()

    def announce(self, path: Path) -> None:
        """Tell the other ranks where the file is."""
        self._write("file", path)

    def give_up(self, path: Path | None, error: OSError) -> None:
        """Tell the other ranks that this one could not make the file (no path) or open it."""
        if self._me == 0:
            self._write("file", None, str(error))
        if path:
            self._write(_open_key(path, self._me), None, str(error))

    def find(self) -> Path:
        """Return the path of the file that the first rank has made.

        Raises:
            CollectiveError: the first rank runs on another host, or made no file in time.
        """
        path, maker = self._await(
            "file", 0, lambda at, card: self._is_other_host(card) or at.exists()
        )
        if self._is_other_host(maker):
            self._write(_open_key(path, self._me), path)  # so that the first rank raises too
            raise self._different_hosts_error({0: maker, self._me: self._process})
        return path

    def gather(self, path: Path) -> list[ProcessInfo]:
        """Report that this rank has opened the file; return all ranks' processes once all have.

        Raises:
            CollectiveError: a rank runs on another host, or did not open the file in time.
        """
        self._write(_open_key(path, self._me), path)
        processes = [
            self._await(_open_key(path, peer), peer, lambda *_: True)[1]
            for peer in range(len(self._ranks))
        ]
        if any(self._is_other_host(process) for process in processes):
            raise self._different_hosts_error(dict(enumerate(processes)))
        return processes

    def _is_other_host(self, process: ProcessInfo) -> bool:
        return not self._process.same_host(process)

    def _write(self, key: str, path: Path | None, error: str = "") -> None:
        self._store.set(key, json.dumps([str(path or ""), self._process.to_json(), error]))

    def _await(
        self, key: str, peer: int, is_current: Callable[[Path, ProcessInfo], bool]
    ) -> tuple[Path, ProcessInfo]:
        pause = 2e-4
        while True:
            if self._store.check([key]):
                path_text, process_text, error = json.loads(self._store.get(key))
                if error:
                    raise CollectiveError(
                        f"rank {self._ranks[peer]} could not open the shared memory: {error}"
                    )
                path, process = Path(path_text), ProcessInfo.from_json(process_text)
                if is_current(path, process):
                    return path, process
            if time.monotonic() > self._end:
                raise self._timeout_error(peer)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _timeout_error(self, peer: int) -> CollectiveError:
        return CollectiveError(
            f"rank {self._ranks[self._me]}: rank {self._ranks[peer]} did not open the shared "
            f"memory of ranks {list(self._ranks)} within {self._timeout:g} s. Every member must "
            'ask for this axis with link="shared-memory", and see the same files in memory'
        )

    def _different_hosts_error(self, processes: dict[int, ProcessInfo]) -> CollectiveError:
        places = [
            f"rank {self._ranks[r]} on {c.host} (boot {c.boot})" for r, c in processes.items()
        ]
        return CollectiveError(
            f"the shared-memory link joins ranks of one host: {', '.join(places)}. "
            'Use link="torch" for this axis'
        )


def _open_key(path: Path, peer: int) -> str:
    """Return the key under which `peer` reports that it has opened the file."""
    return f"open/{path.name}/{peer}"
