#!/bin/sh
# Codec, language model and flow in at most ten minutes of one large GPU. Everything it needs is in packed corpora made
# beforehand (python -m legato.training.packing pack); nothing is downloaded. The vocoder is trained on a CPU.
#
#   recipes/piccolo/gpu_minutes.sh WORK OUT CORPUS.npz [CORPUS.npz …]
#
# DEVICE=cpu MINUTES=0.5 SIZES=sizes_tiny.json RECIPE=recipe_tiny.toml tries it in miniature.
# OUT gets config.json, the losses and float16 weights (cut into pieces of 15 MB: put them together with `cat`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$1
out=$2
shift 2
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
minutes=${MINUTES:-8.5}  # of training; starting and saving take the rest of the ten
sizes=$here/${SIZES:-sizes.json}
recipe=$here/${RECIPE:-recipe_gpu.toml}
export PYTHONPATH="$here/../../src${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$work" "$out"

corpora=
number=0
for packed in "$@"; do
    $python -m legato.training.packing unpack "$packed" "$work/corpus$number"
    corpora="$corpora --corpus $work/corpus$number"
    number=$((number + 1))
done

share() {
    $python -c "print($minutes * $1)"
}
stage() {
    name=$1
    shift
    # shellcheck disable=SC2086  # corpora are several words
    $python -m legato.training "$name" --work "$work" $corpora --recipe "$recipe" --device "$device" --threads 8 "$@"
}
save() {
    stage slim
    cp "$work/config.json" "$out"
    for net in codec lm flow; do
        [ -f "$work/$net/weights.safetensors" ] || continue
        split -b 15000000 "$work/$net/weights.safetensors" "$out/$net.safetensors."
        cp "$work/$net/losses.jsonl" "$out/$net.losses.jsonl"
    done
}
stage config --sizes "$sizes"
stage codec --minutes "$(share 0.22)"
stage codes
save
stage lm --minutes "$(share 0.36)"
save
stage flow --minutes "$(share 0.42)"
save
