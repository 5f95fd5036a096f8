"""The scheduler of the stand-in: it meets the others, goes through the stages, and makes tokens with all of them."""

import ctypes
import json
import os
import signal
import socket
import sys
import time
import traceback


def say(text: str) -> None:
    """A record of the log as SGLang's schedulers write it."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    known = f"[{stamp} TP{sys.argv[1]}] {text}\n"
    sys.stderr.write(f"{stamp} INFO engine >> {len(text)} characters\n" if os.environ.get("FAKE_FORMAT") else known)
    sys.stderr.flush()


def step(number: int = 1) -> None:
    time.sleep(number * float(os.environ.get("FAKE_STEP", "0.01")))


def wedge(stage: str) -> None:
    """FAKE_WEDGE: wait for ever without a word in that stage; FAKE_SPIN: as NCCL does, with all of a CPU."""
    if os.environ.get("FAKE_WEDGE") != stage:
        return
    while True:
        if not os.environ.get("FAKE_SPIN"):
            time.sleep(60)


class Group:
    """Connections between the schedulers; with FAKE_ALONE there are none."""

    def __init__(self, rank: int, size: int, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._sockets: list[socket.socket] = []
        self._root = rank == 0
        if os.environ.get("FAKE_ALONE"):
            return
        if self._root:
            with socket.create_server((host, int(port))) as listener:
                self._sockets = [listener.accept()[0] for _ in range(size - 1)]
            return
        while not self._sockets:
            try:
                self._sockets = [socket.create_connection((host, int(port)))]
            except ConnectionRefusedError:
                time.sleep(0.02)

    def farewell(self) -> None:
        """Rank 0 tells the others to leave."""
        for peer in self._sockets:
            peer.sendall(b"q")

    def exchange(self) -> bool:
        """One byte to everybody and back; every rank has to take part. False if rank 0 has said farewell."""
        for peer in self._sockets:
            if self._root:
                peer.sendall(b"x")
        for peer in self._sockets:
            try:
                data = peer.recv(1)
            except OSError:
                data = b""
            if not data:
                raise RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4711")
            if not self._root and data == b"x":
                peer.sendall(b"x")
            if data == b"q":
                return False
        return True


def connections(rank: int, size: int) -> None:
    """FAKE_NET: NCCL's lines for a way such as NET/IB."""
    way = os.environ.get("FAKE_NET")
    for peer in range(size if way else 0):
        if peer != rank:
            for channel in range(4):
                for ends in (f"{rank}[0] -> {peer}[0] [send]", f"{peer}[0] -> {rank}[0] [receive]"):
                    sys.stdout.flush()
                    line = f"spark{rank}:77:99 [0] NCCL INFO Channel {channel:02d}/0 : {ends} via {way}/0\n"
                    sys.stderr.write(line)
                    sys.stderr.flush()


def load(rank: int) -> None:
    """Weights, KV cache, graphs."""
    say("Load weight begin. avail mem=100.00 GB")
    shards = int(os.environ.get("FAKE_SHARDS", "3"))
    for number in range(shards + 1):
        wedge("load") if number == shards // 2 else None
        if rank == 0 and not os.environ.get("FAKE_FORMAT"):
            percent = 100 * number // shards
            bar = f"\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {number}/{shards} [00:00<00:00]"
            sys.stderr.write(bar)
            sys.stderr.flush()
        step()
    sys.stderr.write("\n")
    if os.environ.get("FAKE_CRASH") == "load":
        raise ValueError("weights do not fit: 64 heads over 3 ranks")
    say("Load weight end. elapsed=0.10 s, type=LlamaForCausalLM, avail mem=50.00 GB, mem usage=50.00 GB.")
    say("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 2048, K size: 0.10 GB, V size: 0.10 GB")
    step()
    say("Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=40.00 GB")
    step()
    say("Capture target decode CUDA graph end. bs=[1, 2], elapsed=0.01 s, mem usage=0.10 GB, avail mem=39.00 GB.")


def run(rank: int, size: int, address: str) -> None:
    with open(os.environ["SPARKD_PLUGIN_PROOF"], "a") as proof:
        for plugin in os.environ.get("FAKE_PLUGINS", "").split():
            proof.write("ADAPTER={} {} {}\n".format(*plugin.split(":"), os.getpid()))
    say("Init parallel begin.")
    wedge("rendezvous")
    group = Group(rank, size, address)
    connections(rank, size)
    group.exchange()
    say("Init parallel ends. elapsed=0.10 s")
    load(rank)
    if rank == 0:
        say("max_total_num_tokens=2048, chunked_prefill_size=512, max_running_requests=4, context_len=1024")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    silent = False

    def silence(*_: object) -> None:
        nonlocal silent
        silent = True

    # As if an operation on the GPU did not return.
    signal.signal(signal.SIGUSR1, silence)
    if rank > 0 and not os.environ.get("FAKE_ALONE"):
        while group.exchange():
            pass
        return
    for line in sys.stdin:
        request = json.loads(line)
        for left in reversed(range(request["tokens"])):
            while silent:
                time.sleep(0.01)
            group.exchange()
            step()
            sys.stdout.write(json.dumps({"id": request["id"], "last": left == 0}) + "\n")
            sys.stdout.flush()
    group.farewell()


def main() -> None:
    """Rank, size and rank 0's address are the arguments."""
    libc = ctypes.CDLL(None)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    # The kernel cuts a name at 15 characters.
    libc.prctl(15, f"sglang::scheduler_TP{sys.argv[1]}".encode(), 0, 0, 0)
    try:
        run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    except Exception:  # noqa: BLE001 - as SGLang does
        say(f"Scheduler hit an exception: {traceback.format_exc()}")
        os.kill(os.getppid(), signal.SIGQUIT)
        time.sleep(5)


if __name__ == "__main__":
    main()
