// Draws the waveform, the strip of tokens and the speech in hand over time on canvases. Knows numbers and pixels, nothing of sound or sockets.

const BIN = 600; // samples in the finest bar: 25 ms at 24 kHz
const BAR = 4; // CSS pixels from one bar to the next
const CELL = 5; // CSS pixels from one token to the next
const REST = 1; // half height of a silent bar
const BEND = 0.6; // below 1 lifts quiet speech, as the ear does
const FOOT = 10; // CSS pixels under the line of the chart, for its marks
const LEAST_SPAN_S = 2; // of the chart
const LEAST_LEVEL_S = 0.5;

class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    new ResizeObserver(() => this.fit()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.fit());
  }

  fit() {
    const { clientWidth, clientHeight } = this.canvas;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = clientWidth * devicePixelRatio;
    this.canvas.height = clientHeight * devicePixelRatio;
    this.pen.scale(devicePixelRatio, devicePixelRatio);
    const style = getComputedStyle(this.canvas);
    this.accent = style.getPropertyValue("--accent");
    this.quiet = style.getPropertyValue("--quiet");
    this.line = style.getPropertyValue("--line");
    this.glow = style.getPropertyValue("--glow");
    this.muted = style.getPropertyValue("--muted");
    this.warn = style.getPropertyValue("--warn");
    this.draw();
  }
}

// Bars of peaks. When they no longer fit, two become one, so the picture stands still between such moments.
export class Waveform extends Drawing {
  constructor(canvas) {
    super(canvas);
    this.clear();
  }

  clear() {
    this.peaks = [];
    this.open = { peak: 0, count: 0 };
    this.played = 0;
  }

  // samples: Float32Array
  push(samples) {
    for (const sample of samples) {
      this.open.peak = Math.max(this.open.peak, Math.abs(sample));
      if (++this.open.count === BIN) {
        this.peaks.push(this.open.peak);
        this.open = { peak: 0, count: 0 };
      }
    }
  }

  // played: samples
  draw(played = this.played) {
    this.played = played;
    if (!this.width) return;
    const room = Math.floor(this.width / BAR);
    let group = 2;
    while (this.peaks.length > group * room) group *= 2;
    this.pen.clearRect(0, 0, this.width, this.height);
    for (let bar = 0; bar < room; bar++) {
      const peaks = this.peaks.slice(bar * group, (bar + 1) * group);
      const half = Math.max(REST, (Math.max(0, ...peaks) ** BEND * this.height) / 2);
      this.pen.fillStyle = !peaks.length ? this.line : (bar + 0.5) * group * BIN <= played ? this.accent : this.quiet;
      this.pen.beginPath();
      this.pen.roundRect(bar * BAR, this.height / 2 - half, BAR - 1.5, 2 * half, 1);
      this.pen.fill();
    }
  }
}

// One cell a token, column by column; the newest that fit.
export class TokenStrip extends Drawing {
  constructor(canvas) {
    super(canvas);
    this.clear();
  }

  clear() {
    this.tokens = [];
    this.accepted = 0;
  }

  push(tokens) {
    this.tokens.push(...tokens);
    this.accepted += tokens.filter(Boolean).length;
  }

  draw() {
    if (!this.width) return;
    const rows = Math.floor(this.height / CELL);
    const columns = Math.floor(this.width / CELL);
    const first = Math.max(0, Math.ceil(this.tokens.length / rows) - columns) * rows;
    this.pen.clearRect(0, 0, this.width, this.height);
    for (let cell = 0; cell < rows * columns; cell++) {
      const token = this.tokens[first + cell];
      this.pen.fillStyle = token === undefined ? this.line : token ? this.accent : this.quiet;
      const size = token === undefined ? 1 : CELL - 1.5;
      const inset = (CELL - 1.5 - size) / 2;
      this.pen.fillRect(Math.floor(cell / rows) * CELL + inset, (cell % rows) * CELL + inset, size, size);
    }
  }
}

// Seconds of speech in hand over time, as a filled line; a mark at the foot for each piece that came, and one at the top where it ran dry.
export class BufferChart extends Drawing {
  constructor(canvas) {
    super(canvas);
    this.clear();
  }

  clear() {
    this.levels = []; // [seconds since asked, seconds in hand]
    this.arrivals = []; // seconds since asked
    this.dry = []; // the same
  }

  // Several times a second is enough: later points within a pixel would not be seen.
  push(at, level) {
    if (this.levels.length && at - this.levels.at(-1)[0] < 0.05) return;
    this.levels.push([at, level]);
  }

  get most() {
    return Math.max(0, ...this.levels.map(([, level]) => level));
  }

  draw() {
    if (!this.width) return;
    this.pen.clearRect(0, 0, this.width, this.height);
    const floor = this.height - FOOT;
    this.pen.fillStyle = this.line;
    this.pen.fillRect(0, floor, this.width, 1);
    if (!this.levels.length) return;
    const x = (at) => (at / Math.max(LEAST_SPAN_S, this.levels.at(-1)[0])) * this.width;
    const y = (level) => floor - (level / Math.max(LEAST_LEVEL_S, this.most)) * (floor - 2);
    const path = new Path2D();
    path.moveTo(x(this.levels[0][0]), floor);
    for (const [at, level] of this.levels) path.lineTo(x(at), y(level));
    path.lineTo(x(this.levels.at(-1)[0]), floor);
    this.pen.fillStyle = this.glow;
    this.pen.fill(path);
    this.pen.beginPath();
    this.levels.forEach(([at, level], n) => (n ? this.pen.lineTo(x(at), y(level)) : this.pen.moveTo(x(at), y(level))));
    this.pen.strokeStyle = this.accent;
    this.pen.lineWidth = 1.5;
    this.pen.stroke();
    this.pen.fillStyle = this.muted;
    for (const at of this.arrivals) this.pen.fillRect(x(at), floor + 3, 1, FOOT - 3);
    this.pen.fillStyle = this.warn;
    for (const at of this.dry) this.pen.fillRect(x(at) - 1, 0, 2, floor);
  }
}
