"""A simulator's batch of episodes spread over worker processes. Workers are plain subprocesses on a socket each: nothing is forked (so GL
and thread state of the parent do not leak), nothing is unpickled, and a worker whose parent dies reads end-of-file and leaves."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from robowm.errors import UserError
from robowm.types import Obs, Steps
from sim.batched import Batch

PATIENCE = 120.0  # seconds without an answer before a worker counts as hung


def send(connection: Connection, meta: Mapping, arrays: Mapping[str, np.ndarray]) -> None:
    """Send a JSON-able ``meta`` and named arrays."""
    layout = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
    connection.send_bytes(json.dumps({"meta": dict(meta), "layout": layout}).encode())
    for array in arrays.values():
        connection.send_bytes(np.ascontiguousarray(array).tobytes())


def receive(connection: Connection) -> tuple[dict, dict[str, np.ndarray]]:
    """Return what ``send`` was given at the other end; EOFError when it has gone."""
    head = json.loads(connection.recv_bytes())
    arrays = {}
    for name, (dtype, shape) in head["layout"].items():
        arrays[name] = np.frombuffer(bytearray(connection.recv_bytes()), dtype).reshape(shape)
    return head["meta"], arrays


class Pool:
    """Looks like a Batch and splits its rows over ``workers`` processes, in order.

    ``build`` is the import path of a function that makes a Batch from ``n`` and ``settings`` (JSON-able); ``simulator`` names it in errors,
    ``sentence`` is the task's text.
    """

    def __init__(self, build: str, n: int, workers: int, *, simulator: str, sentence: str, **settings):
        self._simulator, self._sentence = simulator, sentence
        self._workers: list[subprocess.Popen] = []
        self._pipes: list[Connection] = []
        self._parts: list[slice] = []  # which rows each worker in use holds
        self._share = -(-n // workers)
        for _ in range(-(-n // self._share)):
            self._start(build, {"n": self._share, **settings})
        self._size = self._ask([({"call": "state_size"}, {})])[0][0]["size"]

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Batch."""
        self._split(len(seeds))
        calls = [({"call": "reset", "seeds": [int(seed) for seed in seeds[part]]}, {}) for part in self._parts]
        return self._obs(_join(self._ask(calls)))

    def step(self, actions: np.ndarray, active: np.ndarray, render_rows: int | None) -> Steps:
        """See Batch."""
        meta = {"call": "step", "render_rows": render_rows}
        got = _join(self._ask([(meta, {"actions": actions[part], "active": active[part]}) for part in self._parts]))
        return Steps(self._obs(got), got["reward"], got["success"], got["terminated"], got["valid"])

    def goal_holds(self) -> np.ndarray:
        """See Batch."""
        return _join(self._ask([({"call": "goal_holds"}, {})] * len(self._parts)))["goal"]

    def get_state(self) -> np.ndarray:
        """See Batch."""
        return _join(self._ask([({"call": "get_state"}, {})] * len(self._parts)))["states"]

    def set_state(self, states: np.ndarray) -> Obs:
        """See Batch."""
        self._split(len(states))
        return self._obs(_join(self._ask([({"call": "set_state"}, {"states": states[part]}) for part in self._parts])))

    def state_size(self) -> int:
        """See Batch."""
        return self._size

    def close(self) -> None:
        """End the workers: they leave when their socket closes, or are killed after a few seconds."""
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._pipes, self._workers = [], []

    def __del__(self):
        self.close()

    def _start(self, build: str, settings: dict) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
        if "MUJOCO_GL" not in os.environ and Path("/dev/nvidia0").exists():
            environment["MUJOCO_GL"] = "osmesa"  # several EGL renderers on one NVIDIA GPU can hang in their first read-back
        command = [sys.executable, "-c", "from sim.workers import main; main()", str(theirs.fileno()), build, json.dumps(settings)]
        self._workers.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL))
        theirs.close()
        self._pipes.append(Connection(ours.detach()))

    def _check_open(self) -> None:
        if not self._workers:
            raise UserError("this environment was closed, or lost a worker; build a new one")

    def _split(self, count: int) -> None:
        self._check_open()
        share = -(-count // len(self._workers))
        self._parts = [slice(first, min(first + share, count)) for first in range(0, count, share)]

    def _ask(self, calls: Sequence[tuple[dict, dict]]) -> list[tuple[dict, dict[str, np.ndarray]]]:
        """Send call k to worker k, then collect all answers (so that the pipes stay in step), then raise the first error."""
        self._check_open()
        answers = []
        for k, (meta, arrays) in enumerate(calls):
            try:
                send(self._pipes[k], meta, arrays)
            except OSError:
                self._lost(k)
        for k in range(len(calls)):
            try:
                if not self._pipes[k].poll(PATIENCE):
                    self._workers[k].kill()
                    self._lost(
                        k, f"gave no answer for {PATIENCE:.0f} s and was ended; rendering may hang: set MUJOCO_GL=osmesa or workers=1"
                    )
                answers.append(receive(self._pipes[k]))
            except (EOFError, OSError):
                self._lost(k)
        for k, (meta, _) in enumerate(answers):
            if "error" in meta:
                raise UserError(meta["error"]) if meta["user"] else RuntimeError(f"{self._simulator} worker {k} failed:\n{meta['error']}")
        return answers

    def _lost(self, k: int, what: str = "") -> None:
        worker = self._workers[k]
        try:
            code = worker.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        what = what or f"ended by itself (exit code {code}; -9: killed, often for memory)"
        raise UserError(
            f"{self._simulator} worker {k} (process {worker.pid}) {what}; start again, with fewer workers or a smaller n if it recurs"
        ) from None

    def _obs(self, got: dict[str, np.ndarray]) -> Obs:
        frames = {name.removeprefix("frames/"): array for name, array in got.items() if name.startswith("frames/")}
        return Obs(frames, got["state"], got["environment_state"], (self._sentence,) * len(got["state"]))


def _join(answers: Sequence[tuple[dict, dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([arrays[name] for _, arrays in answers]) for name in answers[0][1]}


def _obs_arrays(obs: Obs) -> dict[str, np.ndarray]:
    frames = {f"frames/{name}": array for name, array in obs.frames.items()}
    return {"state": obs.state, "environment_state": obs.environment_state, **frames}


def _answer(batch: Batch, meta: dict, arrays: dict[str, np.ndarray]) -> tuple[dict, dict[str, np.ndarray]]:
    match meta["call"]:
        case "reset":
            return {}, _obs_arrays(batch.reset(meta["seeds"]))
        case "step":
            steps = batch.step(arrays["actions"], arrays["active"], meta["render_rows"])
            outcome = {"reward": steps.reward, "success": steps.success, "terminated": steps.terminated, "valid": steps.valid}
            return {}, {**_obs_arrays(steps.obs), **outcome}
        case "goal_holds":
            return {}, {"goal": batch.goal_holds()}
        case "get_state":
            return {}, {"states": batch.get_state()}
        case "set_state":
            return {}, _obs_arrays(batch.set_state(arrays["states"]))
        case "state_size":
            return {"size": batch.state_size()}, {}
    raise ValueError(f"unknown call {meta['call']!r}")


def serve(connection: Connection, batch: Batch) -> None:
    """Answer calls until the other end closes."""
    while True:
        try:
            meta, arrays = receive(connection)
        except (EOFError, OSError):
            break
        try:
            answer = _answer(batch, meta, arrays)
        except UserError as error:
            answer = {"error": str(error), "user": True}, {}
        except Exception:  # noqa: BLE001  whatever it is, the parent must hear of it
            answer = {"error": traceback.format_exc(), "user": False}, {}
        try:
            send(connection, *answer)
        except OSError:
            break
    batch.close()


def main() -> None:
    """Entry point of a worker process: argv holds the socket's file descriptor, what builds the batch and its settings."""
    module, _, name = sys.argv[2].rpartition(".")
    build = getattr(importlib.import_module(module), name)
    serve(Connection(int(sys.argv[1])), build(**json.loads(sys.argv[3])))
