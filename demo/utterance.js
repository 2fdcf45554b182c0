// What is known of one thing that is said: its text, words, samples and times. Knows no page, no socket and no sound.

import { SAMPLE_RATE } from "/stream.js";

const LINGER_S = 0.15; // a word stays marked so long after its end

export class Utterance {
  // order: what was asked for ({voice, speed, seed}). base: where its text begins in the box, in characters; null: it is not in the box.
  constructor(order, base) {
    this.order = order;
    this.base = base;
    this.asked = performance.now();
    this.points = []; // characters sent so far
    this.onsets = []; // words that begin
    this.words = []; // words that are over
    this.pieces = []; // Int16Array
    this.made = 0; // samples
    this.arrivals = []; // ms since asked
    this.firstAudioMs = null;
    this.stats = null;
    this.failed = false;
  }

  get seconds() {
    return this.made / SAMPLE_RATE;
  }

  get text() {
    return this.points.join("");
  }

  add(samples) {
    this.pieces.push(samples);
    this.made += samples.length;
    this.arrivals.push(performance.now() - this.asked);
  }

  // The word that sounds at this second, or null.
  wordAt(second) {
    const onset = this.onsets.findLast((each) => each.start_s <= second);
    if (!onset) return null;
    const word = this.words.find((each) => each.start_char === onset.start_char);
    return word && second >= word.end_s + LINGER_S ? null : onset;
  }

  // Milliseconds between one piece of audio and the next, sorted.
  get gaps() {
    return this.arrivals.slice(1).map((at, n) => at - this.arrivals[n]).sort((a, b) => a - b);
  }
}
