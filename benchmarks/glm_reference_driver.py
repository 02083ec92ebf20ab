"""Runs the released code of GLM-TTS for glm_side_by_side.py, in a process and an environment of its own.

    python glm_reference_driver.py REFERENCE TREE CASE.json

REFERENCE is a clone of zai-org/GLM-TTS, TREE a checkpoint in its layout, CASE.json what is spoken (and the sizes that
the release writes into its code). Reads lines `plain SEED` and `stream SEED` from stdin and answers each with a line of
JSON: seconds to the first sound that could be heard, and in all.

    plain    what the release does: all tokens, then one flow pass, then the vocoder. Its first sound is its last.
    stream   its streaming function, which nothing in the release calls: it needs all tokens, then cuts them. Its first
             sound is taken when its first vocoder call returns, which is earlier than the function gives it out.
"""

from __future__ import annotations

import json
import sys
import time
import types
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

UNUSED = {"peft": ("LoraConfig", "get_peft_model", "TaskType"), "hyperpyyaml": (), "torchaudio": (), "librosa": ()}
"""Imported by the release, but not called on these paths."""


class Reference:
    """The released nets, put together from the checkpoint's sizes instead of those in the code."""

    def __init__(self, tree: Path, case: dict[str, Any]) -> None:
        self.case, self.tree = case, tree
        self.clock = time.thread_time if case["cpu_time"] else time.perf_counter
        llama = LlamaForCausalLM.from_pretrained(str(tree / "llm"), dtype=torch.float32).eval()
        for name, attributes in UNUSED.items():
            sys.modules[name] = types.ModuleType(name)
            for attribute in attributes:
                setattr(sys.modules[name], attribute, None)
        self.lm = self._language_model(llama)
        self.flow = self._flow()
        self.vocoder = self._vocoder()
        self.wav = self._token_to_wav()

    def _language_model(self, llama: LlamaForCausalLM) -> Any:
        from llm.glmtts import GLMTTS

        lm = GLMTTS(str(self.tree / "llm" / "config.json"), mode="PRETRAIN", spk_prompt_dict_path=None)
        lm.llama, lm.llama_embedding = llama, llama.model.embed_tokens
        lm.set_runtime_vars(self.case["special"])
        return lm

    def _flow(self) -> Any:
        import flow.flow
        import utils.block_mask_util as masks
        from flow.dit import DiT

        sizes = self.case["flow"]
        masks.create_with_cache = lambda pattern, length: masks.create(pattern, length)
        flow.flow.DiT = lambda **given: DiT(**(given | sizes["dit"]))
        net = flow.flow.Flow(
            speech_token_dim=sizes["token_width"], vocab_size=sizes["codes"], spkr_emb_adaLN=True,
            speech_token_cfg=False, remove_spkr_concat_condition=True, mel_dim=80, mel_framerate=50,
            input_frame_rate=25,
        )  # fmt: skip
        net.load_state_dict(torch.load(self.tree / "flow" / "flow.pt", weights_only=True)["model"])
        return net.eval()

    def _vocoder(self) -> Any:
        from cosyvoice.hifigan_cosy2.f0_predictor import ConvRNNF0Predictor
        from cosyvoice.hifigan_cosy2.generator import HiFTGenerator

        sizes = self.case["hift"]
        net = HiFTGenerator(
            in_channels=80, base_channels=sizes["width"], nb_harmonics=8, sampling_rate=24000, nsf_alpha=0.1,
            nsf_sigma=0.003, nsf_voiced_threshold=10, upsample_rates=[8, 5, 3], upsample_kernel_sizes=[16, 11, 7],
            istft_params={"n_fft": 16, "hop_len": 4}, resblock_kernel_sizes=[3, 7, 11],
            resblock_dilation_sizes=[[1, 3, 5]] * 3, source_resblock_kernel_sizes=[7, 7, 11],
            source_resblock_dilation_sizes=[[1, 3, 5]] * 3, lrelu_slope=0.1, audio_limit=0.99,
            f0_predictor=ConvRNNF0Predictor(1, 80, sizes["f0_width"]),
        )  # fmt: skip
        net.load_state_dict(torch.load(self.tree / "hift" / "hift.pt", weights_only=True))
        return net.eval()

    def _token_to_wav(self) -> Any:
        for name, loader in (("vocos_util", "load_vocos_jit"), ("hift_util", "load_hift")):
            module = types.ModuleType(f"utils.{name}")
            setattr(module, loader, lambda device: self._vocode)
            sys.modules[f"utils.{name}"] = module
        from utils.tts_model_util import Token2Wav

        return Token2Wav(self.flow, 24000, "cpu")

    @torch.inference_mode()
    def _vocode(self, mel: torch.Tensor) -> torch.Tensor:
        wave, _ = self.vocoder.inference(mel)
        self.first_sound = self.first_sound or self.clock()
        return wave.reshape(1, -1)

    def speak(self, way: str, seed: int) -> dict[str, float]:
        self.first_sound = 0.0
        start = self.clock()
        codes = self._codes(seed)
        lm_done = self.clock()
        prompt = torch.tensor([self.case["speech"]])
        mel = torch.tensor(self.case["mel"])[None]
        speaker = torch.tensor(self.case["speaker"])[None]
        if way == "plain":
            wave, _ = self.wav.token2wav_with_cache(codes, 10, prompt, mel, speaker)
        else:
            streamed = partial(self.wav.token2wav_stream, codes, prompt_token_list=prompt, prompt_feat_td=mel)
            wave = streamed(embedding=speaker)[0]
        end = self.clock()
        first = end if way == "plain" else self.first_sound
        return {
            "first_s": first - start,
            "total_s": end - start,
            "lm_s": lm_done - start,
            "audio_s": wave.shape[-1] / 24000,
        }

    def _codes(self, seed: int) -> list[int]:
        """Exactly as many codec ids as asked for: both bounds of the length are set to it. Random weights draw ids of
        other kinds too, which would break the release's flow; they are brought into range."""
        ratio = self.case["tokens"] / len(self.case["text"])
        torch.manual_seed(seed)
        ids = [self.case[name] for name in ("text", "prompt_text", "speech")]
        arguments = [
            part for each in ids for part in (torch.tensor([each]), torch.tensor([len(each)], dtype=torch.int32))
        ]
        drawn = self.lm.inference(*arguments, max_token_text_ratio=ratio, min_token_text_ratio=ratio)
        return [int(id) % self.case["codes"] for id in drawn[0]]


def main() -> None:
    warnings.simplefilter("ignore")
    reference, tree, case = (Path(argument) for argument in sys.argv[1:4])
    answers, sys.stdout = sys.stdout, sys.stderr
    sys.path.insert(0, str(reference))
    settings = json.loads(case.read_text(encoding="utf-8"))
    torch.set_num_threads(settings["threads"])
    released = Reference(tree, settings)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        way, seed = line.split()
        print(json.dumps(released.speak(way, int(seed))), file=answers, flush=True)


if __name__ == "__main__":
    main()
