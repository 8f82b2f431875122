#!/usr/bin/env bash
# Benches of the tabletop study's world models: results/world_model_peer.json and results/world_model_bench.json, 45 minutes of one core.
# First, for models and episodes of one training seed (70 minutes of one core):
#   robowm flywheel experiment=world_model_tabletop train_seed=1
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}
unit=outputs/world_model_tabletop/tabletop_push_hidden-1
seen="[{path: $unit/expert}, {path: $unit/perturbed}, {path: $unit/open_loop}]"
held_out="{expert: $unit/held_out_expert, perturbed: $unit/held_out_perturbed, open_loop: $unit/held_out_open_loop}"
robowm() { .venv/bin/python -m robowm.apps.cli "$@"; }

publish() { # study
  robowm report "flywheel=outputs/$1" "study=$1" "command='robowm bench, all words in scripts/bench_tabletop.sh'" "output_dir=outputs/$1_page"
  cp "outputs/$1_page/results.json" "results/$1.json"
}

robowm bench suite=diffusers size=small world_model=sampled loss.pure_noise=0.3 seconds=600 episodes=200 task=tabletop/push_hidden \
  "stores=$seen" "held_out=$held_out" output_dir=outputs/world_model_peer
publish world_model_peer

models="{base: $unit/base, teacher_forcing_seconds: $unit/teacher_forcing_seconds, self_forwarded_seconds: $unit/self_forwarded_seconds"
models="$models, self_rollout: $unit/self_rollout, rl: $unit/rl}"
robowm bench suite=world_model size=small episodes=200 train_seed=1 task=tabletop/push_hidden env=tabletop/push_hidden \
  "world_models=$models" "stores=$held_out" "train_stores=$seen" \
  "regimes={_target_: sim.tabletop.Regimes, camera: wrist}" output_dir=outputs/world_model_bench
publish world_model_bench
