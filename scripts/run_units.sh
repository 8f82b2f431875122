#!/usr/bin/env bash
# Run a long study one unit (task, training seed) at a time and keep each finished one as results/units/<study>/<unit>.zip.
# Kept units are skipped, so it may be stopped at any time and go on elsewhere: only the unit at work is repeated.
#   scripts/run_units.sh loop_small                     all units, then results/loop_small.json
#   scripts/run_units.sh world_model_discs              a study of one task
#   TASKS=push SEEDS="1 2" scripts/run_units.sh loop_small workers=1     some of them, a stage at a time; more overrides may follow
set -euo pipefail
cd "$(dirname "$0")/.."
study=${1:?name a study, e.g. loop_small}
shift
python=.venv/bin/python
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}
tasks=$(sed -n 's/^task: *//p' "configs/experiment/$study.yaml" | tr -d '[],')
for seed in ${SEEDS:-0 1 2}; do
  for task in ${TASKS:-$tasks}; do
    [ -e "results/units/$study/$task-$seed.zip" ] && continue
    "$python" -m robowm.apps.cli flywheel "experiment=$study" "task=$task" "train_seed=$seed" "$@"
    "$python" -m robowm.report.units keep "outputs/$study" "$task-$seed" "results/units/$study"
  done
done
[ -n "${SEEDS:-}${TASKS:-}" ] && exit 0
"$python" -m robowm.report.units restore "results/units/$study" "outputs/$study"
"$python" -m robowm.apps.cli report "flywheel=outputs/$study" "output_dir=outputs/$study/report"
cp "outputs/$study/report/results.json" "results/$study.json"
