"""torchrun, whose ranks are forked from one process that has imported torch already.

`ranks.py SOCKET` serves; `.venv/bin/torchrun` of a page's clone asks. The command line, the agent
and the rendezvous are torch's own. Ranks that start afresh, as a user's do, are in
tests/shardlab/test_lab_01.py.
"""

import json
import os
import runpy
import socket
import sys
import traceback
from argparse import Namespace
from pathlib import Path

import torch._dynamo  # noqa: F401  (an optimizer's first step imports it)
import torch.distributed.run as launcher

import shardlab.model  # noqa: F401

launch_of = launcher.config_from_args


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
    sys.argv = ["torchrun", *wanted["arguments"]]
    launcher.config_from_args = forked
    try:
        launcher.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def forked(asked: Namespace) -> tuple[object, object, list[str]]:
    """Return torchrun's own launch, of a function in place of a program."""
    config, _, _ = launch_of(asked)
    config.start_method = "fork"
    return config, rank, [asked.training_script, *asked.training_script_args]


def rank(script: str, *arguments: str) -> None:
    """Be one rank: what `python SCRIPT ARGUMENTS` would be."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise


if __name__ == "__main__":
    serve(sys.argv[1])
