"""FlashInfer's tuned kernels kept over a restart, on all ranks or on none.

Tuning takes minutes and picks by timing, so that a ring that tunes at every start differs from start to start. SGLang
keeps a file per rank, and drops all of them unless they agree byte for byte. What has to agree is less: that every
rank can load its file, that all were tuned for the same launch and environment, and for the same problems (a rank that
tunes what another has loaded waits for it for ever). That, and the file's own digest, is in a stamp beside the file,
written after it: a file that a crash has left without its stamp, or with an older one, is not loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from adapter.declare import SCHEDULER, Adapter, Options, Symbol

_TUNE = "sglang.srt.model_executor.runner.flashinfer_autotune"
ADAPTER = Adapter(
    name="autotune_keep",
    purpose="keeps FlashInfer's tuned kernels over a restart, on all ranks or on none",
    worth="minutes of each start, and the same kernels after it (knapcio, TP4; zurih, TP3); not measured here",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(f"{_TUNE}:_autotune_cache_digest", "e78ab2ead9b1cc81"),
        Symbol(f"{_TUNE}:_drop_diverged_autotune_cache", "c6886f0ccd8afd66"),
        Symbol(f"{_TUNE}:flashinfer_autotune_context", "02ad71fcf706ce6f"),
        Symbol(f"{_TUNE}:flashinfer_autotune_cache_path", "af7e0e7c696d6336"),
        Symbol(f"{_TUNE}:run_flashinfer_autotune_forward", "b44e61f72fd657f4"),
    ),
)
_OF_THE_RANK = frozenset({"node_rank", "host", "port", "nccl_port", "dist_init_addr", "base_gpu_id", "random_seed",
                          "log_level", "served_model_name", "api_key", "admin_api_key"})  # fmt: skip
"""Arguments that may differ between ranks, or change nothing that is tuned."""
NONE = ""
"""SGLang's own word for a rank that would load nothing."""


def install(_options: Options) -> None:
    from adapter.frame import hook

    hook(ADAPTER.symbol(f"{_TUNE}:_autotune_cache_digest"), partial(_digest, _fingerprint_of_launch), "replace")
    hook(ADAPTER.symbol(f"{_TUNE}:run_flashinfer_autotune_forward"), partial(_tuned, _fingerprint_of_launch), "after")


def _fingerprint_of_launch() -> str:
    from sglang.srt.runtime_context import get_server_args

    return fingerprint_of(vars(get_server_args()))


def fingerprint_of(arguments: Mapping[str, object]) -> str:
    """Of a launch's arguments, but for those that differ between its ranks."""
    kept = {name: repr(value) for name, value in arguments.items() if name not in _OF_THE_RANK and name[:1] != "_"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def stamp_of(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.stamp")


def write_stamp(cache: Path, fingerprint: str, env: Mapping[str, str]) -> None:
    """After the cache is whole on disk. Nothing where there is no cache. Raises OSError."""
    if not cache.is_file():
        return
    stamp = {"file": hashlib.sha256(cache.read_bytes()).hexdigest(), "launch": fingerprint, "env": dict(env)}
    fresh = stamp_of(cache).with_suffix(f".{os.getpid()}")
    try:
        with fresh.open("w") as file:
            json.dump(stamp, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(stamp_of(cache))
    finally:
        fresh.unlink(missing_ok=True)


def agreement(cache: Path, fingerprint: str, env: Mapping[str, str]) -> str:
    """What a rank tells the others: a digest of launch, environment and tuned problems, or NONE.

    A cache that it cannot vouch for is removed at once: if all ranks say NONE, SGLang takes that for agreement and each
    would load whatever file it has.
    """
    problems = _problems(cache, fingerprint, env)
    if problems is None:
        for file in (cache, stamp_of(cache)):
            with contextlib.suppress(OSError):
                file.unlink()
        return NONE
    said = json.dumps([fingerprint, dict(env), problems], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def _problems(cache: Path, fingerprint: str, env: Mapping[str, str]) -> list[str] | None:
    """The names of what is tuned in the cache; None if the stamp is of another file or launch."""
    try:
        content = cache.read_bytes()
        stamp = json.loads(stamp_of(cache).read_text())
        configs = json.loads(content)
    except (OSError, ValueError):
        return None
    right = {"file": hashlib.sha256(content).hexdigest(), "launch": fingerprint, "env": dict(env)}
    return sorted(configs) if stamp == right and isinstance(configs, dict) else None


def _digest(fingerprint: Any, cache_path: Path, env: dict[str, str]) -> str:
    """In place of _autotune_cache_digest."""
    return agreement(cache_path, fingerprint(), env)


def _tuned(fingerprint: Any, _result: None, model_runner: Any, *_arguments: Any, **_options: Any) -> None:
    """After a tuning run, which ends with the cache saved."""
    from flashinfer.autotuner import _collect_metadata
    from sglang.srt.environ import envs
    from sglang.srt.model_executor.runner.flashinfer_autotune import flashinfer_autotune_cache_path

    if envs.SGLANG_FLASHINFER_AUTOTUNE_CACHE.get():
        write_stamp(flashinfer_autotune_cache_path(model_runner), fingerprint(), _collect_metadata())
