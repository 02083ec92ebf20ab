#!/bin/sh
# The whole recipe in miniature: every stage, tiny nets, a few minutes of speech, a few minutes of one core.
# What comes out cannot be understood; that every stage runs and every loss falls is what it shows.
#
#   recipes/piccolo/cpu_minutes.sh [WORK] [STEPS]
set -eu
here=$(dirname "$0")
work=${1:-/tmp/piccolo_miniature}
steps=${2:-120}
python=${PYTHON:-python}
mkdir -p "$work"

$python "$here/texts.py" --out "$work/texts"
$python "$here/durations.py" hibari "$work/hibari.onnx"
$python "$here/speak.py" hibari --model "$work/hibari.onnx" --texts "$work/texts" --out "$work/corpus" --minutes 4
$python "$here/perturb.py" --corpus "$work/corpus" --out "$work/perturbed"

stage() {
    name=$1
    shift
    $python -m legato.training "$name" --work "$work" --corpus "$work/corpus" --corpus "$work/perturbed" \
        --recipe "$here/recipe_tiny.toml" "$@"
}
stage features
stage config --sizes "$here/sizes_tiny.json"
stage codec --steps "$steps"
stage codes
stage lm --steps "$steps"
stage flow --steps "$steps"
stage vocoder --steps "$steps"
stage export --out "$work/voice" --voice hibari=hibari
