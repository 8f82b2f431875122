#!/usr/bin/env bash
# Benches of the tabletop study's world models: results/world_model_peer.json, _bench.json and _long.json, 100 minutes of one core.
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

# 112 frames are four times the 28 that the longest training windows have; the study above has 60.
first=108000
for set in expert perturbed open_loop; do
  robowm rollout size=small env=tabletop/push_hidden actor=$set purpose=evaluation first_seed=$first episodes=200 max_steps=112 \
    stop_after_success=null output_dir=outputs/world_model_long_$set
  first=$((first + 500))
done
robowm bench suite=world_model size=small episodes=200 horizon=112 train_seed=1 task=tabletop/push_hidden controls='[copy_last]' \
  "world_models=$models" \
  "stores={expert: outputs/world_model_long_expert, perturbed: outputs/world_model_long_perturbed, open_loop: outputs/world_model_long_open_loop}" \
  long_roll.frames=0 output_dir=outputs/world_model_long
publish world_model_long
