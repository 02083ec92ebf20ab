// One utterance through the audio worklet.

export const RATE_HZ = 24000; // of the API's `pcm` format, whatever the model's own

let context = null;
let module = null;
let sounding = 0; // players that are not over

// Start the audio device; called within a click, as browsers demand.
export function wakeAudio() {
  context ??= new AudioContext({ sampleRate: RATE_HZ, latencyHint: "interactive" });
  module ??= context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
  return Promise.all([context.resume(), module]);
}

export class Player {
  // `on` is called with each message of the worklet: "started", "playing" and, once, "over".
  constructor(on) {
    sounding += 1;
    context.resume();
    this.node = new AudioWorkletNode(context, "ring-player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.port.onmessage = ({ data }) => {
      if (data.type === "over") this.leave();
      on(data);
    };
    this.node.connect(context.destination);
  }

  leave() {
    this.node.disconnect();
    sounding -= 1;
    // An idle device costs power; what it still holds is heard first.
    setTimeout(() => sounding || context.suspend(), 1000);
  }

  push(int16) {
    const samples = Float32Array.from(int16, (value) => value / 32768);
    this.node.port.postMessage(samples, [samples.buffer]);
  }

  end() {
    this.node.port.postMessage("end");
  }

  stop() {
    this.node.port.postMessage("stop");
  }
}
