// The picture of the sound: a bar per 40 ms, what was heard in colour, what waits to be heard in grey, and the level of
// this moment at the line between them.

const BAR_SAMPLES = 960;
const STEP_PX = 4;
const BAR_PX = 2.5;

export class Wave {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.due = false;
    this.clear();
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear() {
    this.peaks = [];
    this.partial = { peak: 0, count: 0 };
    this.played = 0;
    this.level = 0;
    this.draw();
  }

  push(int16) {
    for (const value of int16) {
      this.partial.peak = Math.max(this.partial.peak, Math.abs(value));
      if (++this.partial.count === BAR_SAMPLES) this.closeBar();
    }
    this.draw();
  }

  end() {
    if (this.partial.count) this.closeBar();
    this.draw();
  }

  closeBar() {
    this.peaks.push(Math.sqrt(this.partial.peak / 32768)); // nearer to how loud it is heard
    this.partial = { peak: 0, count: 0 };
  }

  play(playedSamples, level) {
    this.played = playedSamples / BAR_SAMPLES;
    this.level = Math.sqrt(level);
    this.draw();
  }

  // At most once per picture of the screen, however many messages come.
  draw() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.paint();
    });
  }

  paint() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = width * ratio; // clears it too
    this.canvas.height = height * ratio;
    const pen = this.pen;
    pen.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    const [heard, waiting] = ["--accent", "--bar"].map((name) => style.getPropertyValue(name));
    const visible = Math.floor(width / STEP_PX);
    // The line stays at 60 % of the width once it is there, unless all of the rest fits.
    const first = Math.max(0, Math.min(this.played - visible * 0.6, this.peaks.length - visible));
    const bar = (x, size, colour) => {
      const tall = Math.max(2, Math.min(1, size) * (height - 4));
      pen.fillStyle = colour;
      pen.beginPath();
      pen.roundRect(x, (height - tall) / 2, BAR_PX, tall, BAR_PX / 2);
      pen.fill();
    };
    for (let i = Math.floor(first); i < first + visible; i++) {
      if (i < this.peaks.length) bar((i - first) * STEP_PX, this.peaks[i], i < this.played ? heard : waiting);
      else bar((i - first) * STEP_PX, 0, waiting);
    }
    if (this.level > 0) bar((this.played - first) * STEP_PX, this.level, heard);
  }
}
