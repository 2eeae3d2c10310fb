"""A torchrun whose ranks are forked from one process that has already imported torch.

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
    """Serve launches, one after another, each in a fork of this process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    os._exit(launch(connection))
                connection.sendall(bytes([os.waitstatus_to_exitcode(os.wait()[1]) & 255]))


def launch(connection: socket.socket) -> int:
    """Act as torchrun for a client: use the client's folder, environment and output files."""
    message, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    request = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    options = launcher.parse_args(request["arguments"])
    port = free_port()
    size = int(options.nproc_per_node)
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    variables |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    # No thread lives in this process: a fork of one with threads may wait for theirs for ever.
    ranks = set()
    for number in range(size):
        if (pid := os.fork()) == 0:
            os.environ.update(variables, RANK=str(number), LOCAL_RANK=str(number))
            os._exit(run_rank(options.training_script, *options.training_script_args))
        ranks.add(pid)
    return wait_for_ranks(ranks)


def wait_for_ranks(ranks: set[int]) -> int:
    """Wait for all ranks; if one fails, end the remaining ranks, as torchrun does."""
    status = 0
    while ranks:
        pid, wait_status = os.wait()
        ranks.discard(pid)
        if wait_status and not status:
            status = os.waitstatus_to_exitcode(wait_status) & 255
            for remaining in ranks:
                os.kill(remaining, signal.SIGTERM)
    return status


def run_rank(script: str, *arguments: str) -> int:
    """Act as one rank: run `python SCRIPT ARGUMENTS` in this process."""
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
