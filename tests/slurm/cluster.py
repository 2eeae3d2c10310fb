"""Slurm's own daemons on one host, a controller and two nodes, made `inside` namespaces.

Inside the namespaces, the loopback, its ports and all processes belong to the cluster. All
processes end with the first one, however it ends; so do the jobs' processes, which leave their
daemon's session. The daemons write into the folder that they are given.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.costlab.network.namespaces import inside
from tests.limits import LIMIT
from tests.running import run_program

NODES = ("one", "two")
ADDRESSES = ("10.79.0.1", "10.79.0.2")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
# No accounts, no signatures, no cgroups: one user, one host. The nodes have more cores than any
# job asks for, so none waits for another.
SETTINGS = """\
ClusterName=test
SlurmctldHost={host}({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node-%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node-%n.log
NodeName={nodes[0]} NodeHostname={host} NodeAddr={addresses[0]} Port=6821 CPUs=64
NodeName={nodes[1]} NodeHostname={host} NodeAddr={addresses[1]} Port=6822 CPUs=64
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""


def explain_lack() -> str:
    """Return why no cluster can be made here, or ""."""
    programs = ("slurmctld", "slurmd", "sbatch", "unshare", "ip")
    lacking = [name for name in programs if shutil.which(name) is None]
    if lacking or os.geteuid():
        why = f"no {' and no '.join(lacking)} here" if lacking else "only root may start a cluster"
        return f"{why}: as root, with Debian's packages slurmctld, slurmd and iproute2"
    answer = run_program(inside(["true"]))
    return f"namespaces are refused here: {answer.stderr.strip()}" if answer.returncode else ""


class Cluster:
    """The daemons of a controller and two nodes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "state").mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # With 127.0.0.1 alone, Slurm finds no address family configured and doesn't listen.
        for address in ADDRESSES:
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        hosts = folder / "hosts"  # the host's own lead to networks that aren't there
        hosts.write_text(
            f"127.0.0.1 localhost\n{ADDRESSES[0]} {socket.gethostname()} {host}\n", "utf-8"
        )
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
        settings = folder / "slurm.conf"
        settings.write_text(
            SETTINGS.format(folder=folder, host=host, addresses=ADDRESSES, nodes=NODES), "utf-8"
        )
        os.environ["SLURM_CONF"] = str(settings)
        self._start("slurmctld", "-D")
        for node in NODES:
            (folder / f"spool-{node}").mkdir()
            self._start("unshare", "--mount", "sh", "-c", self._on_disk_of(node))
        self.until(lambda: run("sinfo", "--noheader", "--format=%T").split() == ["idle"])

    def _on_disk_of(self, node: str) -> str:
        """Return the command of a node's daemon; `disk` is a folder of that node only."""
        disk = self._folder / f"disk-{node}"
        disk.mkdir()
        self.disk.mkdir(exist_ok=True)
        return f"mount --bind '{disk}' '{self.disk}' && exec slurmd -D -N {node}"

    @property
    def disk(self) -> Path:
        """A path that leads to another folder on each node."""
        return self._folder / "disk"

    def _start(self, *command: str) -> None:
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def submit(self, *command: str, **environment: str) -> int:
        """Submit a job; return its number."""
        answer = run("sbatch", "--parsable", f"--chdir={Path.cwd()}",
                      f"--output={self._folder}/job-%j.log", *command, **environment)  # fmt: skip
        return int(answer)

    def job(self, number: int) -> dict[str, str]:
        """Return Slurm's record of a job."""
        shown = run("scontrol", "--oneliner", "show", "job", str(number))
        return {"Restarts": "", "JobState": ""} | dict(re.findall(r"(\w+)=(\S*)", shown))

    def log(self, number: int) -> str:
        """Return the output of a job."""
        return (self._folder / f"job-{number}.log").read_text("utf-8", errors="replace")

    def until(self, event: Callable[[], object]) -> None:
        """Wait for an event.

        Raises:
            TimeoutError: the event didn't occur; with the last lines of all logs.
        """
        end = time.monotonic() + LIMIT
        while not event():
            if time.monotonic() > end:
                logs = sorted(self._folder.glob("*.log"))
                log_tails = [f"== {log.name}\n{log.read_text('utf-8')[-3000:]}" for log in logs]
                raise TimeoutError("\n".join(log_tails))
            time.sleep(0.1)

    def until_queued_again(self, number: int) -> None:
        """Wait until a job is queued again and no process of its first start is left."""

        def queued() -> bool:
            job = self.job(number)
            return (job["Restarts"], job["JobState"]) == ("1", "PENDING")

        self.until(queued)
        self.until(lambda: not list_processes(number))

    def until_over(self, number: int) -> dict[str, str]:
        """Wait until a job has ended; return Slurm's record of it."""
        self.until(lambda: self.job(number)["JobState"] in OVER)
        return self.job(number)


def list_processes(number: int) -> list[str]:
    """Return the processes of a job."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"SLURM_JOB_ID={number}".encode() in (process / "environ").read_bytes().split(b"\0"):
                processes.append(process.name)
    return processes


def run(*command: str, **environment: str) -> str:
    """Return the output of a command: "" if it fails, as it does while a daemon starts."""
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False,
        timeout=LIMIT,
    )  # fmt: skip
    return done.stdout
