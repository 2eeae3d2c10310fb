"""Slurm's own daemons on one host: a controller and two nodes; to be made `inside` namespaces.

In there the loopback, its ports and the processes are the cluster's alone, and all end with the
first process, however that ends: the jobs' too, which leave their daemon's session. What the
daemons write lies in the folder they are given.
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


def refusal() -> str:
    """Why no cluster can be made here, or ""."""
    programs = ("slurmctld", "slurmd", "sbatch", "unshare", "ip")
    lacking = [name for name in programs if shutil.which(name) is None]
    if lacking or os.geteuid():
        why = f"no {' and no '.join(lacking)} here" if lacking else "only root may start a cluster"
        return f"{why}: as root, with Debian's packages slurmctld, slurmd and iproute2"
    answer = subprocess.run(inside(["true"]), capture_output=True, text=True, check=False)
    return f"namespaces are refused here: {answer.stderr.strip()}" if answer.returncode else ""


class Cluster:
    """The daemons, with both nodes idle."""

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
        self.until(lambda: said("sinfo", "--noheader", "--format=%T").split() == ["idle"])

    def _on_disk_of(self, node: str) -> str:
        """Return the command of a node's daemon, for which `disk` is a folder that it alone has."""
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
        answer = said("sbatch", "--parsable", f"--chdir={Path.cwd()}",
                      f"--output={self._folder}/job-%j.log", *command, **environment)  # fmt: skip
        return int(answer)

    def job(self, number: int) -> dict[str, str]:
        """Return what Slurm says of a job."""
        shown = said("scontrol", "--oneliner", "show", "job", str(number))
        return {"Restarts": "", "JobState": ""} | dict(re.findall(r"(\w+)=(\S*)", shown))

    def log(self, number: int) -> str:
        """Return what a job has printed."""
        return (self._folder / f"job-{number}.log").read_text("utf-8", errors="replace")

    def until(self, event: Callable[[], object]) -> None:
        """Wait for an event.

        Raises:
            TimeoutError: it didn't come; with what everybody had said.
        """
        end = time.monotonic() + LIMIT
        while not event():
            if time.monotonic() > end:
                logs = sorted(self._folder.glob("*.log"))
                told = [f"== {log.name}\n{log.read_text('utf-8')[-3000:]}" for log in logs]
                raise TimeoutError("\n".join(told))
            time.sleep(0.1)

    def until_queued_again(self, number: int) -> None:
        """Wait until a job is in the queue once more and nothing is left of its first start."""

        def queued() -> bool:
            job = self.job(number)
            return (job["Restarts"], job["JobState"]) == ("1", "PENDING")

        self.until(queued)
        self.until(lambda: not left_of(number))

    def until_over(self, number: int) -> dict[str, str]:
        """Wait until a job has ended for good; return what Slurm says of it."""
        self.until(lambda: self.job(number)["JobState"] in OVER)
        return self.job(number)


def left_of(number: int) -> list[str]:
    """Return the processes that belong to a job."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"SLURM_JOB_ID={number}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


def said(*command: str, **environment: str) -> str:
    """Run a command; return what it says: nothing where it fails, as while a daemon comes up."""
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False,
        timeout=LIMIT,
    )  # fmt: skip
    return done.stdout
