"""Stream from a running `legato serve` with OpenAI's own client (pip install openai)."""

from __future__ import annotations

import os
from pathlib import Path

from openai import OpenAI


def main() -> None:
    client = OpenAI(base_url=os.environ.get("LEGATO_URL", "http://127.0.0.1:8000/v1"), api_key="none")
    with client.audio.speech.with_streaming_response.create(
        model="piccolo", voice="heart", input="Sound arrives while this is still being made.", response_format="wav"
    ) as response:
        response.stream_to_file(Path("speech.wav"))


if __name__ == "__main__":
    main()
