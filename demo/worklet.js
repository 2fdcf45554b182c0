// Plays samples from a ring buffer on the audio thread. Knows samples and time, no text and no socket.
//
// In:  {kind: "samples", samples: Float32Array} | {kind: "end"} | {kind: "clear", stream}
// Out: {kind: "position", stream, played, time, level, underruns} about every REPORT_QUANTA,
//      {kind: "audible", stream} once per stream, {kind: "ended", stream}, {kind: "silent", stream} when "clear" has silenced the last one.
// A stream is what lies between two "clear"; its number tells late reports from current ones.

const JITTER_START_MS = 60; // buffered before the first sound
const JITTER_STEP_MS = 40; // more after each underrun
const JITTER_MAX_MS = 160;
const QUANTUM = 128; // samples in one call, fixed by the Web Audio API
const REPORT_QUANTA = 4; // 21 ms at 24 kHz
const AUDIBLE_RMS = 10 ** (-45 / 20); // full scale = 1

class SpeechPlayer extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.ring = new Float32Array(processorOptions.ringSeconds * sampleRate);
    this.tail = null; // what fades out after a "clear"
    this.cleared = false; // a "clear" came since the last quantum
    this.reset(0);
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  reset(stream) {
    this.stream = stream;
    this.written = 0; // samples of this stream
    this.played = 0;
    this.flowing = false; // false: filling the jitter buffer
    this.over = false; // no more samples will come
    this.target = (JITTER_START_MS / 1000) * sampleRate;
    this.underruns = 0;
    this.audible = false;
    this.quanta = 0;
    this.level = 0;
  }

  receive(data) {
    if (data.kind === "samples") {
      const at = this.written % this.ring.length;
      const head = data.samples.subarray(0, this.ring.length - at);
      this.ring.set(head, at);
      this.ring.set(data.samples.subarray(head.length), 0);
      this.written += data.samples.length;
    } else if (data.kind === "end") {
      this.over = true;
    } else if (data.kind === "clear") {
      if (this.flowing) {
        const length = Math.min(QUANTUM, this.written - this.played);
        this.tail = Float32Array.from({ length }, (_, i) => this.ring[(this.played + i) % this.ring.length]);
      }
      this.reset(data.stream);
      this.cleared = true;
    }
  }

  process(inputs, [[out]]) {
    const waiting = this.written - this.played;
    const wasFlowing = this.flowing;
    if (!this.flowing) this.flowing = waiting > 0 && (this.over || waiting >= this.target);
    if (this.flowing) {
      // The last whole quantum of a dry buffer fades out: a cut-off wave clicks.
      const dry = !this.over && waiting < 2 * out.length;
      this.play(out, Math.min(waiting, out.length), wasFlowing ? 1 : 0, dry ? 0 : 1);
      if (dry) {
        this.flowing = false;
        this.underruns += 1;
        this.target = Math.min(this.target + (JITTER_STEP_MS / 1000) * sampleRate, (JITTER_MAX_MS / 1000) * sampleRate);
      }
    }
    // After "clear" one quantum fades out, in place of a click; a new stream cannot sound within the same one.
    this.tail?.forEach((sample, i) => (out[i] += sample * (1 - i / out.length)));
    this.tail = null;
    if (this.cleared) this.port.postMessage({ kind: "silent", stream: this.stream });
    this.cleared = false;
    if (this.over && this.played === this.written) {
      this.report();
      this.port.postMessage({ kind: "ended", stream: this.stream });
      this.over = this.flowing = false;
    } else if (++this.quanta % REPORT_QUANTA === 0 && this.written > 0) {
      this.report();
    }
    return true;
  }

  // Copies `count` samples to `out` with a gain going from one value to another; gains of 1 change nothing.
  play(out, count, gainFrom, gainTo) {
    let energy = 0;
    for (let i = 0; i < count; i++) {
      const gain = gainFrom + ((gainTo - gainFrom) * i) / out.length;
      out[i] = gain * this.ring[(this.played + i) % this.ring.length];
      energy += out[i] * out[i];
    }
    this.played += count;
    const rms = Math.sqrt(energy / out.length);
    this.level = Math.max(this.level, rms);
    if (!this.audible && rms >= AUDIBLE_RMS) {
      this.audible = true;
      this.port.postMessage({ kind: "audible", stream: this.stream });
    }
  }

  report() {
    const { stream, played, level, underruns, flowing } = this;
    this.port.postMessage({ kind: "position", stream, played, time: currentTime, level, underruns, flowing });
    this.level = 0;
  }
}

registerProcessor("speech-player", SpeechPlayer);
