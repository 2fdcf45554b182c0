// Draws the waveform and the strip of tokens on canvases. Knows numbers and pixels, nothing of sound or sockets.

const BIN = 600; // samples in the finest bar: 25 ms at 24 kHz
const BAR = 4; // CSS pixels from one bar to the next
const CELL = 5; // CSS pixels from one token to the next
const REST = 1; // half height of a silent bar
const BEND = 0.6; // below 1 lifts quiet speech, as the ear does

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
