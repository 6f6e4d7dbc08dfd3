#!/usr/bin/env python3
"""Tallygate behind a real Envoy and before a real Redis, on free ports of this machine's loopback.

    make demo                  fetches the servers, builds Tallygate, runs this
    make demo STORE=memory     the same with counters in Tallygate's own memory, where that applies

Each line below a step is a request and the status line that its client really got. The demo ends with a non-zero
code at the first difference from what it says, stops all that it started, and leaves no file behind.
"""

import argparse
import http.client
import os
import secrets
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # no __pycache__ beside the demo

from processes import HOST, Difference, Redis, Stage, Upstream, free_ports, get, replace_once

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".parts" / "bin"
TALLYGATE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "tallygate"
WINDOW = 5  # seconds, of the policy `orders`
LOCAL_WINDOW = 10  # of the local limit that `catalog` falls back to


class Demo:
    def __init__(self, stage, tallygate, in_memory):
        self.stage = stage
        self.tallygate = tallygate
        self.in_memory = in_memory
        names = ["edge", "envoy_admin", "authz", "tallygate_admin", "redis", "upstream"]
        self.ports = dict(zip(names, free_ports(len(names))))
        self.redis = Redis(self.ports["redis"])
        self.upstream = Upstream(self.ports["upstream"])

    # --- starting

    def start_redis(self):
        command = [BIN / "redis-server", "--port", self.ports["redis"], "--bind", HOST, "--dir", self.stage.folder]
        self.stage.start("redis", command + ["--save", "", "--appendonly", "no", "--loglevel", "warning"])
        self.stage.wait_until("a PONG from Redis", self.redis.is_up)

    def start_tallygate(self):
        secret = self.stage.folder / "hmac.key"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32) + "\n")
        text = (ROOT / "examples" / "demo" / "tallygate.yaml").read_text()
        text = replace_once(text, "127.0.0.1:50051", "%s:%d" % (HOST, self.ports["authz"]))
        text = replace_once(text, "127.0.0.1:9180", "%s:%d" % (HOST, self.ports["tallygate_admin"]))
        text = replace_once(text, "/etc/tallygate/hmac.key", str(secret))
        if self.in_memory:
            text = replace_once(text, '{ redis: { url: "redis://127.0.0.1:6379" } }', "{ memory: {} }")
        else:
            text = replace_once(text, "127.0.0.1:6379", "%s:%d" % (HOST, self.ports["redis"]))
        config = self.stage.folder / "tallygate.yaml"
        config.write_text(text)
        self.stage.start("tallygate", [self.tallygate, "serve", "--config", config])
        self.wait_for_ok("tallygate_admin", "/readyz")

    def start_envoy(self):
        text = (ROOT / "envoy" / "tallygate.yaml").read_text()
        for shipped, name in ((10000, "edge"), (9901, "envoy_admin"), (50051, "authz"), (8080, "upstream")):
            text = replace_once(text, "port_value: %d }" % shipped, "port_value: %d }" % self.ports[name])
        config = self.stage.folder / "envoy.yaml"
        config.write_text(text)
        # A base id of its own, so that an Envoy that already runs on this machine is not disturbed.
        flags = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
        self.stage.start("envoy", [BIN / "envoy", "-c", config] + flags)
        self.wait_for_ok("envoy_admin", "/ready")

    def start(self):
        if not self.in_memory:
            self.start_redis()
        self.start_tallygate()
        self.start_envoy()
        # Ready says nothing of Redis, on purpose; the first decision that came from it does.
        self.wait_for_ok("edge", "/orders", x_user="warm-up")

    def wait_for_ok(self, port, path, seconds=10, **headers):
        def answered():
            answer = get(self.ports[port], path, **headers)
            return answer if answer.status == 200 else None

        return self.stage.wait_until("200 from %s (%s)" % (path, port), answered, seconds)

    # --- asking

    def ask(self, path, user, want, retry_after=None):
        """One request through Envoy, shown and compared. `retry_after` is the range that the field must lie in."""
        calls = self.upstream.calls
        answer = get(self.ports["edge"], path, x_user=user)
        show(path, user, answer)
        wanted, came = [str(want)], [str(answer.status)]
        if retry_after:
            low, high = retry_after
            value = answer.retry_after or "none"
            right = value.isdigit() and low <= int(value) <= high
            wanted.append("retry-after " + (str(low) if low == high else "%d to %d" % (low, high)))
            came.append(wanted[-1] if right else "retry-after " + value)
        # A refused request must not have reached the application.
        wanted.append("%d calls of the application" % (want == 200))
        came.append("%d calls of the application" % (self.upstream.calls - calls))
        if wanted != came:
            text = "GET %s as %s\n  wanted: %s\n  came:   %s"
            raise Difference(text % (path, user, ", ".join(wanted), ", ".join(came)))
        return answer

    def command(self, words, want, meaning):
        """One Redis command, shown and compared. A key is cut for the eye: what follows is the rest of a hash."""
        reply = self.redis.command(*words)
        shown = " ".join(word if isinstance(word, str) else word.decode()[:24] + "..." for word in words)
        print("   redis> %-36s %-3s %s" % (shown, reply.decode() if isinstance(reply, bytes) else reply, meaning))
        if reply != want:
            raise Difference("Redis %s\n  wanted: %r\n  came:   %r" % (shown, want, reply))

    # --- the story

    def run(self):
        step("a", "Alice may make 3 requests in %d s. The fourth is refused and never reaches the application." % WINDOW)
        for _ in range(3):
            self.ask("/orders", "alice", 200)
        refused = self.ask("/orders", "alice", 429, retry_after=(1, WINDOW))

        step("b", "Bob has a counter of his own: a limit is per tenant and subject.")
        self.ask("/orders", "bob", 200)

        step("c", "Retry-After is a promise: alice waits just that long (%s s) and is served." % refused.retry_after)
        time.sleep(int(refused.retry_after))
        before = set() if self.in_memory else self.redis.keys("rl:orders:*")
        self.ask("/orders", "alice", 200)

        if self.in_memory:
            print("\nWith store: memory the rest does not apply: nobody else can write to the counters (d), and there is")
            print("no Redis to lose (e) or to get back (f). `make demo` shows these.")
            return
        self.foreign_state(self.redis.keys("rl:orders:*") - before)
        self.outage()

    def foreign_state(self, new):
        step("d", "A counter that has lost its expiry would refuse alice for ever. Tallygate neither trusts nor repairs")
        print("   what it did not write: the policy's failure mode (closed) answers, and the counter stays as it is.")
        if len(new) != 1:
            raise Difference("wanted one new key after alice's request, found %d" % len(new))
        key = new.pop()
        if b"alice" in key or b"demo" in key:
            raise Difference("the key names the tenant or the subject: %s" % key.decode())
        self.command(["PERSIST", key], 1, "the expiry is gone")
        dump = self.redis.command("DUMP", key)
        self.ask("/orders", "alice", 503, retry_after=(1, 1))
        self.command(["GET", key], b"1", "nothing was counted")
        self.command(["PTTL", key], -1, "and nothing repaired")
        if self.redis.command("DUMP", key) != dump:
            raise Difference("the foreign counter was changed: its DUMP differs")
        self.command(["DEL", key], 1, "the operator removes it")
        self.ask("/orders", "alice", 200)

    def outage(self):
        step("e", "Redis stops. `orders` fails closed: a 503 that says when to try again. `catalog` fails open, but not")
        print("   without bounds: 5 requests in %d s, counted in Tallygate itself." % LOCAL_WINDOW)
        self.stage.stop("redis")
        self.ask("/orders", "alice", 503, retry_after=(1, 1))
        for _ in range(5):
            self.ask("/catalog", "alice", 200)
        self.ask("/catalog", "alice", 429, retry_after=(1, LOCAL_WINDOW))

        step("f", "Redis is back on the same port, empty. Tallygate finds it by itself.")
        self.start_redis()
        back = time.monotonic()
        show("/orders", "alice", self.wait_for_ok("edge", "/orders", seconds=5, x_user="alice"))
        print("   %.1f s after Redis answered its first PING" % (time.monotonic() - back))


def step(letter, text):
    print("\n%s. %s" % (letter, text))


def show(path, user, answer):
    line = answer.line
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        line = "\033[%dm%s\033[0m" % ({2: 32, 4: 33}.get(answer.status // 100, 31), line)
    retry_after = "  retry-after: %s" % answer.retry_after if answer.retry_after else ""
    print("   %-22s %s%s" % ("GET %s as %s" % (path, user), line, retry_after), flush=True)


def main():
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--store", choices=["redis", "memory"], default="redis")
    reader.add_argument("--tallygate", type=Path, default=TALLYGATE, help="another binary than the release build")
    arguments = reader.parse_args()
    in_memory = arguments.store == "memory"
    for binary in [arguments.tallygate, BIN / "envoy"] + ([] if in_memory else [BIN / "redis-server"]):
        if not binary.exists():
            print("demo: %s is missing; `make demo` brings and builds what it needs" % binary, file=sys.stderr)
            return 69
    began = time.monotonic()
    with Stage() as stage:
        try:
            demo = Demo(stage, arguments.tallygate, in_memory)
            demo.start()
            print("client, Envoy :%(edge)d, Tallygate :%(authz)d, application :%(upstream)d" % demo.ports, end="")
            print(", store: memory" if in_memory else ", Redis :%(redis)d" % demo.ports)
            demo.run()
        except (Difference, OSError, http.client.HTTPException) as difference:
            sys.stdout.flush()
            print("\nDIFFERENCE: %s\n" % difference, file=sys.stderr)
            print("\n".join(stage.tails()), file=sys.stderr)
            return 1
    print("\nAll as promised, in %.0f s; everything is stopped again." % (time.monotonic() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
