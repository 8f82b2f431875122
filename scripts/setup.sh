#!/usr/bin/env bash
# Set up ./.venv from nothing: Python 3.12, uv, the pinned packages, robowm itself, and the system's GL libraries where we may install them.
# Idempotent: does nothing when the pins have not changed. Run from anywhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
pins=requirements.txt
stamp="$venv/.robowm-setup"
wanted=$(cat "$pins" requirements-nodeps.txt pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

is_312() { [ -x "$1" ] && "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; }

find_python() {
  local candidate root
  for candidate in "${PYTHON:-}" "$(command -v python3.12 || true)" "$(command -v python3 || true)"; do
    [ -n "$candidate" ] && is_312 "$candidate" && { echo "$candidate"; return; }
  done
  for root in "$(pyenv root 2>/dev/null || true)" "${PYENV_ROOT:-}" "$HOME/.pyenv"; do
    [ -n "$root" ] || continue
    for candidate in "$root"/versions/3.12*/bin/python; do
      is_312 "$candidate" && { echo "$candidate"; return; }
    done
  done
  for candidate in /opt/conda/bin/python "$HOME"/miniconda3/envs/*/bin/python "$HOME"/.local/share/uv/python/cpython-3.12*/bin/python; do
    is_312 "$candidate" && { echo "$candidate"; return; }
  done
}

find_uv() { # any Python that has pip can fetch uv into ./.uv
  local python
  if command -v uv >/dev/null; then command -v uv; return; fi
  if [ ! -x .uv/bin/uv ]; then
    for python in "$1" python3; do
      [ -n "$python" ] || continue
      { "$python" -m venv .uv && .uv/bin/python -m pip install -q uv; } >&2 && break
      "$python" -m pip install -q --target .uv uv >&2 && break
    done
  fi
  [ -x .uv/bin/uv ] && echo "$PWD/.uv/bin/uv"
}

system_libraries() {
  local apt=(libosmesa6 libegl1 libgl1 libglib2.0-0 ffmpeg) run=""
  if ldconfig -p 2>/dev/null | grep -q 'libEGL\.so' && ldconfig -p | grep -q 'libOSMesa\.so' && command -v ffmpeg >/dev/null; then return; fi
  [ "$(id -u)" = 0 ] || { sudo -n true 2>/dev/null && run="sudo -n"; } || { [ "$(id -u)" = 0 ]; } || run=none
  if command -v apt-get >/dev/null && [ "$run" != none ]; then
    say "installing ${apt[*]}"
    $run apt-get update -qq >/dev/null && $run apt-get install -y -qq --no-install-recommends "${apt[@]}" >/dev/null && return
  fi
  say "headless rendering needs: sudo apt-get update && sudo apt-get install -y ${apt[*]}   (then: robowm doctor)"
}

[ "$(uname -s)" = Linux ] || say "tested on Linux only; going on"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && is_312 "$venv/bin/python"; then exit 0; fi

started=$(date +%s)
system_libraries
python=$(find_python)
uv=$(find_uv "$python") || true
[ -n "$uv" ] || fail "cannot install uv: no Python with pip found. Install one (sudo apt-get install python3-pip python3-venv) and run this again."
if [ -z "$python" ]; then
  say "no Python 3.12 on PATH or under pyenv; asking uv for one"
  "$uv" python install -q 3.12 && python=$("$uv" python find 3.12) || fail \
    "robowm needs Python 3.12 and found none (looked at PYTHON, python3.12, python3, pyenv, conda, uv). Install it (pyenv install 3.12) or set PYTHON=/path/to/python3.12."
fi
say "Python $("$python" -c 'import platform; print(platform.python_version())'); installing pinned packages (several GB the first time)"
is_312 "$venv/bin/python" || "$uv" venv -q --clear --python "$python" "$venv"
"$uv" pip install -q --python "$venv/bin/python" --compile-bytecode -r "$pins"
"$uv" pip install -q --python "$venv/bin/python" --no-deps -r requirements-nodeps.txt
"$uv" pip install -q --python "$venv/bin/python" --no-deps --no-build-isolation -e .
echo "$wanted" >"$stamp"
say "done in $(($(date +%s) - started)) s; activate with: source $venv/bin/activate"
