"""A process tree that behaves like SGLang 0.5.23's: real processes, its log formats, its HTTP endpoints, no model.

The schedulers of a group hold connections to rank 0's, and no token is made unless each of them answers. FAKE_* in the
environment says what is to go wrong, and how long things take.
"""

import argparse
import importlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NoReturn


def say(text: str, process: str = "") -> None:
    """A record of SGLang's log, or with FAKE_FORMAT the same in a format that nobody knows."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    known = f"[{stamp}{f' {process}' if process else ''}] {text}\n"
    sys.stderr.write(f"{stamp} INFO engine >> {len(text)} characters\n" if os.environ.get("FAKE_FORMAT") else known)
    sys.stderr.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sglang serve")
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--load-format", choices=("auto", "dummy"), default="auto")
    parser.add_argument("--enable-metrics", action="store_true")
    for name in ("--nnodes", "--node-rank", "--tp-size", "--port"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--dist-init-addr", "--host"):
        parser.add_argument(name, required=True)
    return parser.parse_args()


class Scheduler:
    """The scheduler's process as the main process sees it: requests go in, tokens come out one by one."""

    def __init__(self, options: argparse.Namespace) -> None:
        environ = dict(os.environ)
        name, sign, value = environ.get("FAKE_CHANGE", "").partition("=")
        if sign:
            environ[name] = value
        # Python's first argument is its title, as setproctitle makes it.
        command = [f"sglang::scheduler_TP{options.node_rank}", "-m", "sglang.scheduler"]
        command += [str(options.node_rank), str(options.nnodes)]
        self.process = subprocess.Popen(
            [*command, options.dist_init_addr, options.model_path],
            env=environ,
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.counted = 0
        self.running = 0
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[bool]] = {}

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            code = self.process.wait()
            raise RuntimeError(f"Rank 0 scheduler died during initialization (exit code: {code}). See above.")
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            self.counted += 1
            if message["last"]:
                self._answers[message["id"]].put(True)

    def generate(self, tokens: int) -> int:
        """Blocks for as long as it takes, which may be for ever."""
        number = next(self._numbers)
        self._answers[number] = queue.Queue()
        self.running += 1
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "tokens": tokens}) + "\n")
        self.process.stdin.flush()
        self._answers[number].get()
        self.running -= 1
        return tokens


class Handler(BaseHTTPRequestHandler):
    """Rank 0's server; ``engine`` is set on a subclass."""

    engine: Scheduler
    options: argparse.Namespace
    board: Any = None
    counting = threading.Lock()
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """SGLang's access log is off at its usual level."""

    def reply(self, status: int, body: object = None, text: str = "") -> None:
        data = text.encode() if text else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if text:
            # As uvicorn sends what says nothing of its length.
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
            return
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health_generate":
            if not os.environ.get("FAKE_NEVER"):
                before = self.engine.counted
                threading.Thread(target=self.engine.generate, args=(1,), daemon=True).start()
                end = time.monotonic() + 20
                while self.engine.counted == before and time.monotonic() < end:
                    time.sleep(0.01)
                self.reply(200 if self.engine.counted > before else 503)
                return
            self.reply(503)
        elif self.path == "/metrics" and self.options.enable_metrics:
            self.reply(200, text=self.metrics())
        else:
            self.reply(404, {"detail": "Not Found"})

    def metrics(self) -> str:
        labels = 'engine_type="unified",model_name="m",tp_rank="0"'
        running = min(self.engine.running, 1)
        return (
            "# TYPE sglang:num_running_reqs gauge\n"
            f"sglang:num_running_reqs{{{labels}}} {running}.0\n"
            f"sglang:num_queue_reqs{{{labels}}} {self.engine.running - running}.0\n"
            f'sglang:realtime_tokens_total{{{labels},mode="decode"}} {self.engine.counted}.0\n'
        )

    def do_POST(self) -> None:
        """As behind the door of the real plug-in."""
        if self.board is None:
            self.work()
            return
        if self.board.shut:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(503, {"message": self.board.sentence})
            return
        with self.counting:
            self.board.running += 1
        try:
            self.work()
        finally:
            with self.counting:
                self.board.running -= 1

    def work(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/chat/completions":
            if os.environ.get("FAKE_NO_TEMPLATE"):
                self.reply(400, {"message": "the model has no chat template"})
                return
            if body["model"] != (self.options.served_model_name or self.options.model_path):
                self.reply(404, {"message": f"no model {body['model']}"})
                return
            made = self.engine.generate(body["max_tokens"])
            self.reply(200, {"choices": [{"message": {"content": "x"}}], "usage": {"completion_tokens": made}})
        elif self.path == "/generate":
            made = self.engine.generate(body["sampling_params"]["max_new_tokens"])
            self.reply(200, {"text": "x", "meta_info": {"completion_tokens": made}})
        else:
            self.reply(404)


def door() -> Any:
    """What the plug-in puts in front of the server, unless FAKE_DOORLESS."""
    if os.environ.get("FAKE_DOORLESS"):
        return None
    plugin = importlib.import_module("sparkd_drain")
    prove(f"{plugin.NAME}:0123456789ab")
    descriptor = os.open(os.environ[plugin.VARIABLE], os.O_RDWR)
    try:
        board = plugin.Board(descriptor)
    finally:
        os.close(descriptor)
    board.sentence = plugin.SENTENCE
    return board


def prove(plugins: str) -> None:
    """Plug-ins, each as NAME:DIGEST, are installed in this process."""
    with open(os.environ["SPARKD_PLUGIN_PROOF"], "a") as proof:
        for plugin in plugins.split():
            proof.write("ADAPTER={} {} {}\n".format(*plugin.split(":"), os.getpid()))


def kill_tree() -> NoReturn:
    """As SGLang does it: the children first, then itself, by SIGKILL."""
    subprocess.run(["pkill", "-KILL", "-P", str(os.getpid())], check=False)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def child_failed(*_: object) -> NoReturn:
    say("Received sigquit from a child process. It usually means the child failed.")
    # It writes down what it was asked, first.
    time.sleep(5)
    kill_tree()


def serve(options: argparse.Namespace, engine: Scheduler) -> NoReturn:
    """Rank 0, once its scheduler is ready."""
    board = door()
    handler = type("Bound", (Handler,), {"engine": engine, "options": options, "board": board})
    server = ThreadingHTTPServer((options.host, options.port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stop = threading.Event()

    def drain(*_: object) -> None:
        say("SIGTERM received. Draining requests and shutting down...")
        stop.set()

    signal.signal(signal.SIGTERM, drain)
    say("The server is fired up and ready to roll!")
    while not stop.wait(0.05):
        if (code := engine.process.poll()) is not None:
            say(f"Subprocess scheduler_0 (pid={engine.process.pid}) crashed with exit code {code}. Triggering SIGQUIT")
            kill_tree()
    assert engine.process.stdin is not None
    engine.process.stdin.close()
    engine.process.wait()
    sys.exit(0)


def wait_for_work(options: argparse.Namespace, engine: Scheduler) -> NoReturn:
    """A rank above 0: a server that always says that all is well, and no way to end it but by rank 0's word.

    SIGTERM is only remarked upon, so that alone it ends nothing.
    """
    handler = type("Dummy", (BaseHTTPRequestHandler,), {"do_GET": lambda self: self.send_response(200)})
    server = ThreadingHTTPServer((options.host, options.port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.signal(
        signal.SIGTERM,
        lambda *_: say("SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast to stop."),
    )
    say(f"Dummy health check server started in background thread at {options.host}:{options.port}")
    code = engine.process.wait()
    say(f"Scheduler or DataParallelController {engine.process.pid} terminated with {code}")
    # Taking an interpreter apart that has loaded PyTorch.
    time.sleep(5)
    sys.exit(0)


def main() -> None:
    """Start as SGLang does, and stay."""
    options = arguments()
    say(f"server_args=ServerArgs(model_path='{options.model_path}')")
    if not os.path.isdir(options.model_path):
        try:
            raise LookupError(f"Repo id must be in the form 'repo_name': '{options.model_path}'")
        except LookupError as error:
            raise OSError(f"Can't load the configuration of '{options.model_path}'.") from error
    signal.signal(signal.SIGQUIT, child_failed)
    # FAKE_MAIN and, in the scheduler, FAKE_PLUGINS: what has been installed there.
    prove(os.environ.get("FAKE_MAIN", ""))
    engine = Scheduler(options)
    engine.wait_until_ready()
    if options.node_rank > 0:
        wait_for_work(options, engine)
    serve(options, engine)


if __name__ == "__main__":
    main()
