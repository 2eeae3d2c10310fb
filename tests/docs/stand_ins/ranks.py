"""torchrun, but that its ranks are forked from one process that has imported torch already.

`ranks.py SOCKET` serves; `.venv/bin/torchrun` of a page's clone asks. The command line is read as
torch reads it, and the ranks are told what torchrun tells them. torch's own launches, whose ranks
start afresh as a user's do, are in tests/shardlab/labs/test_lab_01.py.
"""

import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

import torch._dynamo  # noqa: F401  (an optimizer's first step imports it)
import torch.distributed.run as launcher
from tests.free_port import free_port

import shardlab.gpt.model  # noqa: F401


def serve(address: str) -> None:
    """Do what is asked, one launch after another, each in a fork of this process."""
    with socket.socket(socket.AF_UNIX) as meeting:
        meeting.bind(address)
        meeting.listen()
        print("ready", flush=True)
        while True:
            asking, _ = meeting.accept()
            with asking:
                if os.fork() == 0:
                    os._exit(launched(asking))
                asking.sendall(bytes([os.waitstatus_to_exitcode(os.wait()[1]) & 255]))


def launched(asking: socket.socket) -> int:
    """Be torchrun for the one who asks: in its folder and environment, writing where it writes."""
    message, files, _, _ = socket.recv_fds(asking, 1 << 20, 3)
    wanted = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    asked = launcher.parse_args(wanted["arguments"])
    port = free_port()
    size = int(asked.nproc_per_node)
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    told |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    # No thread lives in this process: a fork of one with threads may wait for theirs for ever.
    ranks = set()
    for number in range(size):
        if (pid := os.fork()) == 0:
            os.environ.update(told, RANK=str(number), LOCAL_RANK=str(number))
            os._exit(rank(asked.training_script, *asked.training_script_args))
        ranks.add(pid)
    return ended(ranks)


def ended(ranks: set[int]) -> int:
    """Wait for all; where one fails, end the others, as torchrun does."""
    status = 0
    while ranks:
        pid, how = os.wait()
        ranks.discard(pid)
        if how and not status:
            status = os.waitstatus_to_exitcode(how) & 255
            for other in ranks:
                os.kill(other, signal.SIGTERM)
    return status


def rank(script: str, *arguments: str) -> int:
    """Be one rank: what `python SCRIPT ARGUMENTS` would be."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as done:
        if isinstance(done.code, str):
            print(done.code, file=sys.stderr)
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
