"""Makes an environment for a clone from the packages of the Python that runs the tests.

`python environment.py CLONE` does what `make test-env` would, and downloads nothing: the packages
are those of this Python, shardbook is the clone's.
"""

import sys
import sysconfig
import venv
from importlib.metadata import entry_points
from pathlib import Path

# Asks the process that imported torch once (stand_ins/ranks.py), whose address is in RANKS.
TORCHRUN = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as ranks:
    ranks.connect(os.environ["RANKS"])
    asked = {"folder": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv[1:]}
    socket.send_fds(ranks, [json.dumps(asked).encode()], [0, 1, 2])
    sys.exit(ranks.recv(1)[0])
"""


def make_environment(clone: Path) -> None:
    """Make `.venv` in the clone."""
    folder = clone / ".venv"
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    packages_of_tests = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths = [str(clone.resolve() / "tools"), *sorted(packages_of_tests)]
    packages.joinpath("lent.pth").write_text("".join(f"{path}\n" for path in paths), "utf-8")
    for command in entry_points(group="console_scripts"):
        module, _, name = command.value.partition(" ")[0].partition(":")
        program = f"import sys\nfrom {module} import {name.partition('.')[0]}\nsys.exit({name}())\n"
        write_program(folder, command.name, program)
    write_program(folder, "torchrun", TORCHRUN)


def write_program(folder: Path, name: str, text: str) -> None:
    """Write a program of the environment."""
    path = folder / "bin" / name
    path.write_text(f"#!/usr/bin/env -S '{folder.resolve()}/bin/python'\n{text}", "utf-8")
    path.chmod(0o755)


if __name__ == "__main__":
    make_environment(Path(sys.argv[1]))
