#!/bin/sh
# The reproduction on a CPU: hours on two cores. Every step continues what it finds, so it can be stopped and called again.
#   sh results/miniwob_cpu/run.sh [seed …]
set -e
cd "$(dirname "$0")/../.."
PY=.venv/bin/python
WARM=runs/miniwob-cpu/sft
START="init.agent=$WARM/agent init.attacker=$WARM/attacker"
TRAIN="eval.split=train eval.episodes=27"
seeds=${*:-0 1}
# Demonstrations and warm start once, with seed 0; the runs differ in everything behind.
[ -d $WARM/attacker ] || $PY scripts/sft.py experiment=miniwob_cpu
for seed in $seeds; do
  run=miniwob-cpu-$seed
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=$run $START
  # training tasks with seeds that were never trained on; more episodes for the two rows that matter most; unseen tasks
  $PY scripts/crossplay.py runs/$run $TRAIN eval.seeds=[$seed] eval.agents=[sft,rl-5,rl-10] \
    eval.attackers=[none,sft,rl-5,rl-10] --out runs/$run/crossplay-train
  $PY scripts/crossplay.py runs/$run $TRAIN eval.seeds=[1$seed,2$seed] eval.agents=[sft,rl-10] \
    eval.attackers=[none,sft] --out runs/$run/crossplay-more
  $PY scripts/crossplay.py runs/$run eval.seeds=[$seed] eval.agents=[sft,rl-10] eval.attackers=[none,sft,rl-10]
  # the base model writes no calls: what it leaks anywhere in its replies
  $PY scripts/crossplay.py runs/$run $TRAIN eval.seeds=[$seed] game.leak.scope=response eval.agents=[base] \
    eval.attackers=[none,sft] --out runs/$run/crossplay-response
done
for seed in $seeds; do
  run=miniwob-cpu-$seed
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=$run-no_pbl population=latest $START
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=$run-no_al game.attack=false algo.seats=[agent] $START
  for other in no_pbl no_al; do
    $PY scripts/crossplay.py runs/$run-$other $TRAIN eval.seeds=[$seed] game.attack=true \
      eval.agents=[rl-10] eval.attackers=[none,runs/$run:sft,runs/$run:rl-10] --out runs/$run-$other/crossplay-train
  done
done
all() { for seed in $seeds; do echo "runs/miniwob-cpu-$seed/$1"; done; }
$PY scripts/heatmap.py $(all crossplay-train/crossplay.csv) --out results/miniwob_cpu/crossplay-train.csv
$PY scripts/heatmap.py $(all crossplay/crossplay.csv) --out results/miniwob_cpu/crossplay-unseen.csv
$PY scripts/trends.py $(all crossplay-train) $(all crossplay-more) --out results/miniwob_cpu/trends.md
