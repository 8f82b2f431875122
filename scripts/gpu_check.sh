#!/usr/bin/env bash
# Train every part for some steps at size=small on whatever device=auto finds, roll out in the simulator and in the world model, render, and
# print steps/s and memory. Under 8 minutes on a GPU. Usage: scripts/gpu_check.sh [folder] (default: a fresh temporary one)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=python3
out=${1:-$(mktemp -d)}
task="env=tabletop/pick_place"
common="size=small"

robowm() { "$python" -m robowm.apps.cli "$@"; }
stage() { # name, verb, overrides...: run one verb and print its wall time
  local name=$1 began; shift
  began=$(date +%s)
  robowm "$1" $common "output_dir=$out/$name" "${@:2}"
  printf '%-14s %4d s\n' "$name" $(($(date +%s) - began))
}
speed() { # name: last line of its training log
  "$python" - "$out/$1/log.jsonl" "$1" <<'PY'
import json, sys
last = json.loads(open(sys.argv[1]).read().splitlines()[-1])
print(f"{sys.argv[2]:14s} {last['steps_per_s']:8.1f} steps/s {last['memory_mib']:8.0f} MiB   loss {last['loss']:.4f} after {last['step']} steps")
PY
}

"$python" -c "
import torch
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'
print(f'torch {torch.__version__}, GPU: {gpu}, threads: {torch.get_num_threads()}')"
robowm doctor || true
stage demos collect $task until_successes=20
stage policy train-policy "stores=[{path: $out/demos}]" steps=1000 log_every=100
stage rollouts rollout $task "policy.path=$out/policy" episodes=64
stage held_out rollout $task "policy.path=$out/policy" purpose=validation episodes=64
stage world_model train-world-model "stores=[{path: $out/demos}, {path: $out/rollouts}]" steps=1000 log_every=100
stage success train-success task=tabletop/pick_place "stores=[{path: $out/demos}, {path: $out/rollouts}]" \
  "validation_stores=[{path: $out/held_out}]" steps=500 log_every=100
stage imagined imagine $task "policy.path=$out/policy" "world_model.path=$out/world_model" "classifier.path=$out/success" \
  starts.first_seed=20000 episodes=64
stage improved improve "init_from=$out/policy" "stores=[{path: $out/demos}]" steps=300 log_every=100
stage evaluated evaluate $task arm=base "policy.path=$out/policy" purpose=tuning first_seed=50000 episodes=64
for part in policy world_model success improved; do speed "$part"; done
