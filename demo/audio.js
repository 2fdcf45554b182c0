// The main thread's half of the player: feeds the worklet and knows where the sound is. Knows no text and no socket.

const RING_SECONDS = 20; // the rest waits here
const FILL_SECONDS = RING_SECONDS - 2; // never overwrite what is yet to be played

export class Player extends EventTarget {
  // Events: "audible" (first sound), "ended" (all played), "position", "underrun", "silent" (after stop).
  constructor(sampleRate) {
    super();
    this.sampleRate = sampleRate;
    this.stream = 0;
    this.loudest = 0; // RMS of the loudest piece played
    this.reset();
  }

  reset() {
    this.queue = []; // not yet in the ring
    this.sent = 0;
    this.over = false;
    this.underruns = 0;
    this.last = { played: 0, time: 0, flowing: false };
  }

  // Must be called from a user's action, or browsers keep the sound off.
  async start() {
    if (!this.context) {
      this.context = new AudioContext({ sampleRate: this.sampleRate, latencyHint: "interactive" });
      this.loaded = this.context.audioWorklet.addModule("/worklet.js").then(() => {
        this.node = new AudioWorkletNode(this.context, "speech-player", {
          numberOfInputs: 0,
          outputChannelCount: [1],
          processorOptions: { ringSeconds: RING_SECONDS },
        });
        this.node.port.onmessage = ({ data }) => this.hear(data);
        this.node.connect(this.context.destination);
        this.node.port.postMessage({ kind: "clear", stream: this.stream });
        this.feed();
      });
    }
    await Promise.all([this.context.resume(), this.loaded]);
  }

  push(samples) {
    for (let at = 0; at < samples.length; at += this.sampleRate) {
      this.queue.push(samples.slice(at, at + this.sampleRate));
    }
    this.feed();
  }

  end() {
    this.over = true;
    this.feed();
  }

  // Silence at once.
  stop() {
    this.stream += 1;
    this.node?.port.postMessage({ kind: "clear", stream: this.stream });
    this.reset();
  }

  // Seconds of this stream that have left the loudspeaker.
  get position() {
    if (!this.context) return 0;
    const { played, time, flowing } = this.last;
    const since = flowing ? this.context.currentTime - time : 0;
    const heard = played / this.sampleRate + Math.min(since, 0.1) - (this.context.outputLatency || 0);
    return Math.max(0, Math.min(heard, this.sent / this.sampleRate));
  }

  feed() {
    if (!this.node) return;
    while (this.queue.length && this.sent - this.last.played < FILL_SECONDS * this.sampleRate) {
      const samples = this.queue.shift();
      this.sent += samples.length;
      this.node.port.postMessage({ kind: "samples", samples }, [samples.buffer]);
    }
    if (this.over && !this.queue.length) {
      this.over = false;
      this.node.port.postMessage({ kind: "end" });
    }
  }

  hear(data) {
    if (data.stream !== this.stream) return;
    if (data.kind === "position") {
      this.last = data;
      if (data.underruns > this.underruns) this.dispatchEvent(new Event("underrun"));
      this.underruns = data.underruns;
      this.loudest = Math.max(this.loudest, data.level);
      this.feed();
    }
    this.dispatchEvent(new Event(data.kind));
  }
}
