// The page: sends the text, shows what comes back. The protocol is service/protocol.md.

import { Player } from "/audio.js";
import { TokenStrip, Waveform } from "/view.js";

const SAMPLE_RATE = 24000;
const PIECE = 4000; // characters in one text message, well under the server's limit
const FULL_SCALE = 32768;
const NONE = "–"; // a value not known yet

// What an error code means for the person in front of the page.
const IN_WORDS = {
  overloaded: "The server is busy: all its sessions are taken. Try again in a moment.",
  shutting_down: "The server is shutting down.",
  unknown_voice: "This voice is no longer there. Reload the page to see the voices.",
  too_long: "This is more text than the server takes at once. Try a shorter one.",
  slow_reader: "The connection is too slow for the audio.",
  idle_timeout: "The server waited too long for this page.",
  internal: "Something went wrong on the server.",
};

const $ = (id) => document.getElementById(id);
const text = $("text");
const waveform = new Waveform($("waveform"));
const strip = new TokenStrip($("tokens"));
export const player = new Player(SAMPLE_RATE);
let talk = null; // the utterance being spoken

// One press of the button
class Talk {
  constructor() {
    this.pressed = performance.now();
    this.points = Array.from(text.value); // the server counts characters as code points
    this.words = [];
    this.marked = null;
    this.made = 0; // samples
    this.failed = false;
    this.finished = false; // the server has said its last word
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}/v1/stream${location.search}`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.ask();
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.told(JSON.parse(data)) : this.given(data));
    this.socket.onclose = () => {
      if (this.finished || this !== talk) return;
      this.fail(this.made ? "The connection to the server was lost." : "The server cannot be reached. Is it running?");
    };
  }

  ask() {
    const start = { type: "start", speed: Number($("speed").value), timestamps: true, speculation: true };
    if ($("voice").value) start.voice = $("voice").value;
    if (!$("speculation").checked) start.drafter = "none";
    this.say(start);
    for (let at = 0; at < this.points.length; at += PIECE) {
      this.say({ type: "text", text: this.points.slice(at, at + PIECE).join("") });
    }
    this.say({ type: "end" });
  }

  say(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  given(data) {
    const samples = Float32Array.from(new Int16Array(data), (sample) => sample / FULL_SCALE);
    this.made += samples.length;
    waveform.push(samples);
    player.push(samples);
  }

  told(message) {
    if (message.type === "timestamps") this.words.push(...message.words);
    else if (message.type === "speculation") strip.push(message.accepted);
    else if (message.type === "warning") warn(message.message);
    else if (message.type === "error") this.fail(IN_WORDS[message.code] ?? "The server refused.", message.message);
    else if (message.type === "end") this.finish(message.stats);
  }

  finish(stats) {
    this.finished = true;
    if (stats.rtf) show("pace", (1 / stats.rtf).toFixed(1), "× real time");
    if (stats.tau) show("tau", stats.tau.toFixed(2));
    player.end();
    if (!this.made) idle("Nothing to speak in this text");
  }

  // Stops the sound and, if need be, the server.
  cancel() {
    if (!this.finished) this.say({ type: "cancel" });
    this.finished = true;
    this.socket.close();
    player.stop();
  }

  fail(inWords, detail = "") {
    this.finished = this.failed = true;
    const small = document.createElement("small");
    small.textContent = detail;
    $("error").replaceChildren(inWords, ...(detail ? [small] : []));
    $("error").hidden = false;
    if (this.made) player.end(); // what has arrived may still be heard
    else idle("Not spoken");
  }

  // Marks the word that sounds at this second.
  mark(second) {
    const word = this.words.findLast((each) => each.start_s <= second) ?? null;
    const current = word && second < word.end_s + 0.15 ? word : null;
    if (current === this.marked) return;
    this.marked = current;
    if (!current) return mirror();
    const mark = document.createElement("mark");
    mark.textContent = this.points.slice(current.start_char, current.end_char).join("");
    mirror(
      this.points.slice(0, current.start_char).join(""), mark, this.points.slice(current.end_char).join(""),
    );
  }
}

async function speak() {
  talk?.cancel();
  player.stop();
  clear();
  if (!text.value.trim()) {
    $("error").textContent = "There is no text yet. Type or paste some first.";
    $("error").hidden = false;
    text.focus();
    return;
  }
  const mine = (talk = new Talk());
  document.body.classList.add("speaking");
  $("speak").textContent = "Stop";
  text.readOnly = true;
  $("status").textContent = "Speaking";
  mine.open();
  requestAnimationFrame(frame);
  try {
    await player.start();
  } catch {
    mine.cancel();
    mine.fail("This browser gives no access to its audio output.");
    idle("Not spoken");
  }
}

function stop() {
  if (!talk) return;
  talk.cancel();
  idle("Stopped");
}

function idle(status) {
  talk?.mark(Infinity);
  talk = null;
  document.body.classList.remove("speaking");
  $("speak").textContent = "Speak";
  text.readOnly = false;
  $("status").textContent = status;
}

function clear() {
  waveform.clear();
  strip.clear();
  mirror();
  $("error").hidden = true;
  $("warnings").replaceChildren();
  for (const id of ["first-audio", "pace", "accepted", "tau", "underruns"]) show(id, NONE);
  draw();
}

function frame() {
  draw();
  if (!talk) return;
  talk.mark(player.position);
  requestAnimationFrame(frame);
}

function draw() {
  const made = talk ? talk.made / SAMPLE_RATE : 0;
  if (talk) {
    waveform.draw(player.position * SAMPLE_RATE);
    $("played").textContent = `${player.position.toFixed(1)} s`;
    $("made").textContent = `${made.toFixed(1)} s`;
    show("underruns", String(player.underruns));
  } else {
    waveform.draw();
  }
  strip.draw();
  if (strip.tokens.length) {
    const percent = Math.round((100 * strip.accepted) / strip.tokens.length);
    show("accepted", percent, "%");
    $("tokens").ariaLabel = `${strip.tokens.length} tokens, ${percent} % drafted and accepted`;
  }
}

function show(id, value, unit = "") {
  $(id).classList.toggle("none", value === NONE);
  const small = document.createElement("small");
  small.textContent = unit;
  $(id).replaceChildren(String(value), ...(unit ? [small] : []));
}

function warn(message) {
  const item = document.createElement("li");
  item.textContent = message;
  $("warnings").append(item);
}

function mirror(...parts) {
  $("mirror").replaceChildren(...(parts.length ? parts : [text.value]), "\n");
}

function typed() {
  const count = Array.from(text.value).length;
  $("count").textContent = count === 1 ? "1 character" : `${count.toLocaleString("en")} characters`;
  mirror();
}

async function loadVoices() {
  const select = $("voice");
  try {
    const { voices, default: first } = await (await fetch(`/v1/voices${location.search}`)).json();
    select.replaceChildren(
      ...voices.map(({ name, language }) => new Option(`${name} (${language})`, name, name === first, name === first)),
    );
    select.disabled = false;
  } catch {
    $("status").textContent = "The list of voices could not be loaded";
  }
}

player.addEventListener("audible", () => {
  if (talk) show("first-audio", Math.round(performance.now() - talk.pressed), "ms");
});
player.addEventListener("ended", () => {
  if (!talk) return;
  draw();
  waveform.draw(talk.made);
  $("played").textContent = $("made").textContent;
  $("waveform").ariaLabel = `Waveform of ${(talk.made / SAMPLE_RATE).toFixed(1)} seconds of speech`;
  const done = talk.failed ? "Broken off" : `Spoke ${(talk.made / SAMPLE_RATE).toFixed(1)} s`;
  player.stop();
  idle(done);
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (talk) stop();
  else speak();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak();
  }
});
// The first touch of the page already wakes the audio, so that the press of the button need not wait for it.
for (const kind of ["pointerdown", "keydown"]) {
  document.addEventListener(kind, () => player.start().catch(() => {}), { once: true, capture: true });
}
text.addEventListener("input", typed);
$("speed").addEventListener("input", () => {
  $("speed-shown").textContent = `${Number($("speed").value).toFixed(2)}×`;
});

if (/Mac|iPhone|iPad/.test(navigator.platform)) document.querySelector("kbd").textContent = "⌘";
clear();
typed();
loadVoices();
