"""The checks of ``robowm doctor``: one line each, with what to install where something is missing."""

from __future__ import annotations

import netrc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import robowm
from robowm.errors import UserError

OK, NOTE, BROKEN = "ok", "note", "BROKEN"
BACKENDS = ("egl", "osmesa")
GL_PACKAGES = "apt-get update && apt-get install -y --no-install-recommends libosmesa6 libegl1 libgl1 libglib2.0-0 ffmpeg"
GL_SECONDS = 60  # a back-end that hangs counts as broken
LITTLE_GIB, TOO_LITTLE_GIB = 10.0, 0.5
EXTRAS = {"robosuite": "robosuite", "metaworld": "metaworld", "robomimic": "robomimic", "hydra_plugins.hydra_submitit_launcher": "sweeps"}
RENDER = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size=".3" rgba="1 0 0 1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data)
raise SystemExit(0 if renderer.render()[..., 0].max() > 30 else 'renders a black picture')
"""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor."""

    status: str
    what: str
    line: str


def run(*, output_dir: Path | str) -> dict[str, str]:
    """Print a line for each check and return {what: status}; raise UserError if something that every run needs is broken.

    ``output_dir`` is where runs would write: its disk is looked at.
    """
    checks: Sequence[Callable[[], list[Finding]]] = (
        python,
        versions,
        rendering,
        video,
        device,
        lambda: disk(Path(output_dir)),
        lpips,
        wandb,
        extras,
    )
    findings = []
    for check in checks:
        for finding in check():
            print(f"{finding.status:<7} {finding.what:<10} {finding.line}", flush=True)
            findings.append(finding)
    if broken := [finding.what for finding in findings if finding.status == BROKEN]:
        raise UserError(f"{len(broken)} thing(s) to put right: {', '.join(broken)}; see the lines above")
    return {finding.what: finding.status for finding in findings}


def python() -> list[Finding]:
    """Python 3.12, as lerobot needs and as pinned."""
    found = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] == (3, 12)
    return [Finding(OK if fits else BROKEN, "python", found if fits else f"{found}, needs 3.12: PYTHON=/path/to/python3.12 make setup")]


def versions() -> list[Finding]:
    """Installed packages against the project's requirements, and against the pins of a checkout."""
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in metadata.requires("robowm") or [] if "extra ==" not in text]
    wrong, other = [], []
    pins = pinned(Path(robowm.__file__).resolve().parents[1] / "requirements.txt")
    for requirement in wanted:
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing (needs {requirement.specifier or 'any'})")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found} (needs {requirement.specifier})")
        elif pins.get(requirement.name, found) != found:
            other.append(f"{requirement.name} {found} (tested with {pins[requirement.name]})")
    if wrong:
        return [Finding(BROKEN, "packages", f"{'; '.join(wrong)}; run: pip install -r requirements.txt")]
    if other:
        return [Finding(NOTE, "packages", "; ".join(other))]
    return [Finding(OK, "packages", f"{len(wanted)} as required" + (", all as pinned" if pins else ""))]


def pinned(path: Path) -> dict[str, str]:
    """Return {package: version} of the ``name==version`` lines of a requirements file, or nothing where there is none."""
    if not path.is_file():
        return {}
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {name.split("[")[0].strip(): version.strip() for name, version in pairs}


def rendering() -> list[Finding]:
    """Each headless back-end in a process of its own, for one that fails can spoil the next."""
    reasons = {backend: try_backend(backend) for backend in BACKENDS}
    working = [backend for backend, reason in reasons.items() if not reason]
    failing = "; ".join(f"{backend}: {reason}" for backend, reason in reasons.items() if reason)
    if not working:
        return [Finding(BROKEN, "rendering", f"{failing}. Run: {GL_PACKAGES}")]
    asked = os.environ.get("MUJOCO_GL", "")
    if asked in BACKENDS and asked not in working:
        return [Finding(BROKEN, "rendering", f"MUJOCO_GL={asked} does not work here; unset it or use MUJOCO_GL={working[0]}")]
    return [
        Finding(
            OK, "rendering", f"{' and '.join(working)} {'work' if len(working) > 1 else 'works'}" + (f" ({failing})" if failing else "")
        )
    ]


def try_backend(backend: str) -> str:
    """Return why a picture cannot be rendered with ``backend``, or nothing if it can."""
    environment = os.environ | {"MUJOCO_GL": backend}
    environment.pop("PYOPENGL_PLATFORM", None)
    command = [sys.executable, "-c", RENDER]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=GL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no picture within {GL_SECONDS} s"
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(("Exception ignored", "  ", "Traceback"))]
    return "" if done.returncode == 0 else (lines[0] if lines else f"exit code {done.returncode}")[:160]


def video() -> list[Finding]:
    """The encoder for videos."""
    try:
        import av

        av.codec.Codec("libx264", "w")
    except (ImportError, ValueError) as error:
        return [Finding(BROKEN, "video", f"PyAV cannot write H.264 ({error}); run: pip install --force-reinstall av")]
    return [Finding(OK, "video", f"H.264 through PyAV {av.__version__}")]


def device() -> list[Finding]:
    """What device=auto will choose."""
    import torch

    from robowm.train.distributed import pick_device

    chosen = pick_device("auto")
    if chosen.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        line = (
            f"{chosen}: {torch.cuda.get_device_name(chosen)}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free, torch {torch.__version__}"
        )
        return [Finding(OK, "device", line)]
    threads = torch.get_num_threads()
    hint = f"; {threads} threads a process: OMP_NUM_THREADS=1 is faster beside another process" if threads > 1 else ""
    return [Finding(OK, "device", f"{chosen}, {os.cpu_count()} cores, torch {torch.__version__}{hint}")]


def disk(folder: Path) -> list[Finding]:
    """Space and permission where runs write."""
    existing = next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())
    free = shutil.disk_usage(existing).free / 2**30
    if not os.access(existing, os.W_OK):
        return [Finding(BROKEN, "disk", f"{existing} cannot be written to; choose another output_dir")]
    status = BROKEN if free < TOO_LITTLE_GIB else NOTE if free < LITTLE_GIB else OK
    return [Finding(status, "disk", f"{free:.1f} GiB free at {existing}" + ("" if status == OK else "; free some"))]


def lpips() -> list[Finding]:
    """Weights for LPIPS, without a hub."""
    from robowm.metrics.lpips_weights import load_lpips_weights

    try:
        load_lpips_weights()
    except UserError as error:
        return [Finding(BROKEN, "lpips", str(error))]
    return [Finding(OK, "lpips", "weights found")]


def wandb() -> list[Finding]:
    """Optional tracking."""
    if find_spec("wandb") is None:
        return [Finding(NOTE, "wandb", "not installed; only tracking=wandb needs it: pip install wandb")]
    signed_in = bool(os.environ.get("WANDB_API_KEY")) or _has_netrc_entry("api.wandb.ai")
    line = "signed in" if signed_in else "not signed in; tracking=wandb tracker.mode=offline works, online needs: wandb login"
    return [Finding(OK, "wandb", f"{metadata.version('wandb')}, {line}")]


def _has_netrc_entry(host: str) -> bool:
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def extras() -> list[Finding]:
    """Optional parts."""
    missing = sorted({extra for module, extra in EXTRAS.items() if not _importable(module)})
    return [Finding(OK, "extras", f"not installed: {', '.join(missing)} (pip install 'robowm[<name>]')" if missing else "all installed")]


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
