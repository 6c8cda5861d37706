"""Where the runs live: a Python with librdkafka, and, for root, namespaces of their own for network, mounts and processes.

Nothing of a run is left behind: with its first process all others end, and its networks and mounts are gone.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NOT_RUN = 77
OURS = ("thalweg-history", "thalweg-load", "thalweg-crashfs")


def venv():
    """Starts this program again in a Python that has librdkafka, unless it is there already."""
    if not os.environ.get("CHAOS_VENV"):
        setup = subprocess.run([HERE.parent / "clients/confluent-kafka/setup"])
        if setup.returncode:
            sys.exit(setup.returncode)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        python = cache / "thalweg/clients/confluent-kafka/bin/python"
        os.execve(python, [str(python), *sys.argv], {**os.environ, "CHAOS_VENV": "1"})


def enter():
    """Likewise, and in the namespaces, where there can be any."""
    venv()
    if not os.environ.get("CHAOS_SANDBOX") and why_no_network() is None:
        inside = {**os.environ, "CHAOS_SANDBOX": "1"}
        os.execvpe("unshare", [
            "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv], inside)


def why_no_network():
    """Why there can be no network of our own; None if there can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("unshare", "ip", "nft"):
        if not shutil.which(tool):
            return f"needs {tool}"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else tried.stderr.strip() or "no namespaces here"


def is_inside():
    return bool(os.environ.get("CHAOS_SANDBOX"))


def thalweg():
    """Our binary: THALWEG_BIN, else the newest that was built."""
    return _binary("thalweg", os.environ.get("THALWEG_BIN"), "make release")


def build():
    """Our own programs for these tests, if they are missing or older than their source. Before `enter`: inside there is no
    way out. Not left to cargo alone: it would build half the world anew for the other features of fewer crates."""
    sources = [path for folder in ("tests/chaos/src", "tests/crashfs/src", "client/src") for path in (ROOT / folder).rglob("*.rs")]
    newest = max(path.stat().st_mtime for path in sources)
    if all(Path(ours(name)).exists() and Path(ours(name)).stat().st_mtime > newest for name in OURS):
        return
    subprocess.run(["cargo", "build", "-p", "thalweg-chaos", "-p", "thalweg-crashfs", "--bins"], cwd=ROOT, check=True)
    for name in OURS:
        os.utime(ours(name))


def ours(name):
    """A program that `build` has built."""
    return str(target() / "debug" / name)


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def _binary(name, named, way_out):
    for path in [Path(named)] if named else [target() / "release" / name, target() / "debug" / name]:
        if os.access(path, os.X_OK):
            return str(path)
    sys.exit(f"no {name} binary: run `{way_out}`, or set THALWEG_BIN")
