"""Talk with a running `legato serve` through OpenAI's own client (pip install openai): text is printed and speech is
kept while both are still being made."""

from __future__ import annotations

import base64
import os
import wave

from openai import OpenAI

PCM_RATE_HZ = 24000
"""A streamed reply is 16-bit samples at this rate, whatever the model's own."""


def main() -> None:
    client = OpenAI(base_url=os.environ.get("LEGATO_URL", "http://127.0.0.1:8000/v1"), api_key="none")
    chunks = client.chat.completions.create(
        model="gpt-audio",
        messages=[{"role": "user", "content": "What is the tallest mountain on earth?"}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        stream=True,
    )
    with wave.open("reply.wav", "wb") as file:
        file.setparams((1, 2, PCM_RATE_HZ, 0, "NONE", ""))
        for chunk in chunks:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
                audio = choice.delta.model_dump().get("audio")  # a class of its own in newer clients, a dict in older
                if audio:
                    file.writeframes(base64.b64decode(audio["data"]))
    print()


if __name__ == "__main__":
    main()
