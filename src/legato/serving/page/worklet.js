// Plays samples in the audio thread. They wait in one ring, so nothing is scheduled buffer by buffer and no seam can
// open between two of them. Counts the samples of silence it had to insert after the start.

const START_SAMPLES = 1440; // 60 ms: covers the jitter of the messages that bring the samples
const REPORT_SAMPLES = 1024;

class RingPlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Float32Array(1 << 17);
    this.written = this.played = this.underrun = this.reported = 0;
    this.started = this.ended = this.stopping = false;
    this.peak = 0;
    this.port.onmessage = ({ data }) => {
      if (data === "end") this.ended = true;
      else if (data === "stop") this.stopping = true;
      else this.push(data);
    };
  }

  push(samples) {
    if (this.written - this.played + samples.length > this.ring.length) this.grow(samples.length);
    const at = this.written & (this.ring.length - 1);
    const head = Math.min(samples.length, this.ring.length - at);
    this.ring.set(samples.subarray(0, head), at);
    this.ring.set(samples.subarray(head), 0);
    this.written += samples.length;
  }

  grow(more) {
    let size = this.ring.length;
    while (size < this.written - this.played + more) size *= 2;
    const ring = new Float32Array(size);
    for (let i = this.played; i < this.written; i++) ring[i & (size - 1)] = this.ring[i & (this.ring.length - 1)];
    this.ring = ring;
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    const waiting = this.written - this.played;
    if (!this.started) {
      if (this.stopping || (this.ended && !waiting)) return this.report("over");
      if (waiting < START_SAMPLES && !this.ended) return true;
      this.started = true;
      this.port.postMessage({ type: "started" });
    }
    const count = Math.min(out.length, waiting);
    for (let i = 0; i < count; i++) {
      out[i] = this.ring[(this.played + i) & (this.ring.length - 1)];
      this.peak = Math.max(this.peak, Math.abs(out[i]));
    }
    this.played += count;
    if (this.stopping) {
      for (let i = 0; i < count; i++) out[i] *= 1 - (i + 1) / count; // a cut would click
      return this.report("over");
    }
    if (this.ended && this.played === this.written) return this.report("over");
    this.underrun += out.length - count;
    if (this.played + this.underrun - this.reported >= REPORT_SAMPLES) this.report("playing");
    return true;
  }

  // Returns whether the processor has more to do.
  report(type) {
    this.port.postMessage({ type, played: this.played, underrun: this.underrun, peak: this.peak });
    this.reported = this.played + this.underrun;
    this.peak = 0;
    return type !== "over";
  }
}

registerProcessor("ring-player", RingPlayer);
