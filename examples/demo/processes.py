"""What the demo's story uses and does not have to explain: free ports, child processes, conditions, and just enough
HTTP and Redis protocol to ask real servers. Standard library only; demo.py is the only caller."""

import http.client
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST = "127.0.0.1"


class Difference(Exception):
    """Something came out otherwise than promised; the text says what was wanted and what came."""


def free_ports(count):
    """Ports that nothing listens on now. They lie below the range that Linux takes ports for outgoing connections
    from: a client that keeps trying a stopped server's port in that range can in the end connect to itself, and then
    the server cannot have its port back."""
    chosen = []
    for port in random.sample(range(20000, 32000), 2000):
        with socket.socket() as trial:
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
        chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise Difference("wanted %d free ports on %s, found %d" % (count, HOST, len(chosen)))


def replace_once(text, old, new):
    """Text substitution that cannot miss: a configuration that has changed its shape is a loud error here."""
    if text.count(old) != 1:
        raise Difference("wanted %r once in the configuration, found it %d times" % (old, text.count(old)))
    return text.replace(old, new)


class Child:
    """A server process, its output in a file."""

    def __init__(self, name, command, log):
        self.name = name
        self.command = [str(word) for word in command]
        self.log = log
        with log.open("ab") as file:
            # Its own process group: a Ctrl-C at the terminal reaches the demo alone, which then stops all in order.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Stage:
    """A temporary folder and the processes that run in it. Leaving it stops them all and removes the folder,
    whatever ended the demo; only SIGKILL can prevent that."""

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tallygate-demo-"))
        self.children = []
        self.starting = False
        self.pending = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of them running
        for child in reversed(self.children):
            child.stop()
        shutil.rmtree(str(self.folder), ignore_errors=True)

    def _interrupted(self, number, _frame):
        # Between fork and the note of it, an exception would lose the child.
        if self.starting:
            self.pending = number
        else:
            raise SystemExit(128 + number)

    def start(self, name, command):
        self.starting = True
        try:
            self.children.append(Child(name, command, self.folder / (name + ".log")))
        finally:
            self.starting = False
        if self.pending:
            raise SystemExit(128 + self.pending)

    def stop(self, name):
        for child in [child for child in self.children if child.name == name]:
            child.stop()
            self.children.remove(child)  # its end was wanted

    def wait_until(self, what, condition, seconds=10.0):
        """Polls until the condition holds; a child that ended meanwhile is reported at once, not after the time."""
        end = time.monotonic() + seconds
        while True:
            try:
                outcome = condition()
                if outcome:
                    return outcome
            except (OSError, http.client.HTTPException):
                pass
            for child in self.children:
                if child.process.poll() is not None:
                    raise Difference("%s ended with code %d" % (child.name, child.process.returncode))
            if time.monotonic() > end:
                raise Difference("wanted within %g s: %s" % (seconds, what))
            time.sleep(0.05)

    def tails(self, lines=12):
        """The last lines of each process's output, for a report of a difference."""
        for child in self.children:
            text = child.log.read_text(errors="replace").splitlines()[-lines:]
            yield "--- %s\n%s" % (child.name, "\n".join(text) or "(no output)")


class Upstream:
    """The application: a real HTTP server in a thread, which counts the requests that reach it."""

    def __init__(self, port):
        upstream = self
        self.calls = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet; in two, delayed acknowledgement adds 40 ms

            def do_GET(self):
                upstream.calls += 1
                body = b"served by the application\n"
                self.send_response(200)
                self.send_header("content-type", "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer((HOST, port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Answer:
    def __init__(self, response):
        response.read()
        self.status = response.status
        self.line = "HTTP/%d.%d %d %s" % (*divmod(response.version, 10), response.status, response.reason)
        self.retry_after = response.getheader("retry-after")


def get(port, path, **headers):
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


class Redis:
    """A Redis client of the size that the demo needs: one connection a command, replies as Python values."""

    def __init__(self, port):
        self.port = port

    def command(self, *words):
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            with connection.makefile("rb") as stream:
                return self._reply(stream)

    def _reply(self, stream):
        line = stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return stream.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b"*":
            return [self._reply(stream) for _ in range(int(rest))]
        if rest.startswith(b"LOADING"):
            raise ConnectionError(rest.decode())  # like a server that is not up yet
        raise Difference("Redis answered " + rest.decode(errors="replace"))

    def is_up(self):
        return self.command("PING") == "PONG"

    def keys(self, pattern):
        """By SCAN, as one would on a live server: KEYS blocks it."""
        found, cursor = set(), b"0"
        while True:
            cursor, some = self.command("SCAN", cursor, "MATCH", pattern)
            found.update(some)
            if cursor == b"0":
                return found
