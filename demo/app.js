// The page: what is pressed and typed, what is said, and what is shown of it.

import { Player } from "/audio.js";
import { compare, tabulate } from "/compare.js";
import { $, NONE, complain, show, warn } from "/dom.js";
import { inWords } from "/errors.js";
import { mp3, save, srt, wav } from "/files.js";
import { SAMPLE_RATE, Stream } from "/stream.js";
import { Typing } from "/typing.js";
import { Utterance } from "/utterance.js";
import { BufferChart, TokenStrip, Waveform } from "/view.js";

const FULL_SCALE = 32768;
const WORD_PAUSE_MS = 800; // in live typing: so long without a key, and the word being written counts as whole
const TEXT_PAUSE_MS = 4000; // and so long, and nothing more is expected
const HEARD_AGAIN_MS = 500;
const FIGURES = [
  "first-audio", "gap", "longest-gap", "underruns", "silence", "tau", "accepted", "count-tokens", "pace",
];

const text = $("text");
const waveform = new Waveform($("waveform"));
const strip = new TokenStrip($("tokens"));
const chart = new BufferChart($("buffer"));
export const player = new Player(SAMPLE_RATE);

let now = null; // the Utterance that is being said
let stream = null; // where it comes from
let last = null; // the last one that was said to its end, for the files
let typing = null; // Typing, while the page speaks as one types
let marked = null;
let comparing = null; // AbortController
let pauses = []; // timers of live typing

const pointsOf = (string) => Array.from(string); // the server counts characters as code points

// What is said

function order() {
  return { voice: $("voice").value, speed: Number($("speed").value), seed: 0 };
}

// Begins an utterance; its text follows. base: see Utterance.
function begin(base) {
  silence();
  clear();
  const mine = (now = new Utterance(order(), base));
  const start = { ...mine.order };
  if (!start.voice) delete start.voice;
  if (!$("speculation").checked) start.drafter = "none";
  stream = new Stream(start, {
    heard: (samples) => mine === now && heard(samples),
    told: (message) => mine === now && told(message),
    failed: (code, message) => mine === now && fail(code, message),
  });
  busy("Speaking");
  player.start().catch(() => mine === now && (stream.cancel(), fail("no_output")));
  requestAnimationFrame(frame);
}

function say(points) {
  for (const point of points) now.points.push(point);
  stream.text(points);
}

function heard(samples) {
  const floats = Float32Array.from(samples, (sample) => sample / FULL_SCALE);
  now.add(samples);
  chart.arrivals.push(now.arrivals.at(-1) / 1000);
  waveform.push(floats);
  player.push(floats);
}

function told(message) {
  if (message.type === "started") now.order.voice = message.voice;
  else if (message.type === "onsets") now.onsets.push(...message.words);
  else if (message.type === "timestamps") now.words.push(...message.words);
  else if (message.type === "speculation") strip.push(message.accepted);
  else if (message.type === "warning") warn(message.message);
  else if (message.type === "end") finish(message.stats);
}

function finish(stats) {
  now.stats = stats;
  if (stats.rtf) show("pace", (1 / stats.rtf).toFixed(1), "× real time");
  if (stats.tau) show("tau", stats.tau.toFixed(2));
  player.end();
  if (!now.made) idle("Nothing to speak in this text");
}

function fail(code, detail = "") {
  now.failed = true;
  complain(inWords(code), detail);
  if (now.made) player.end(); // what has arrived may still be heard
  else idle("Not spoken");
}

// Stops the sound and, if need be, the server.
function silence() {
  stream?.cancel();
  stream = null;
  player.stop();
}

function speakAll() {
  comparing?.abort();
  typing = null;
  if (!text.value.trim()) {
    stop();
    complain(inWords("no_text"));
    text.focus();
    return;
  }
  const points = pointsOf(text.value);
  begin(0);
  say(points);
  if ($("live").checked) {
    stream.say({ type: "flush" });
    follow();
    rest();
  } else {
    text.readOnly = true;
    stream.end();
  }
}

function stop() {
  comparing?.abort();
  if (!now) return;
  silence();
  idle("Stopped");
  follow(); // what is in the box by now is not for speaking
}

function bargeIn() {
  const pressed = performance.now();
  const line = pointsOf($("interruption").value);
  if (!now) return;
  silence();
  player.addEventListener("silent", () => show("silence", Math.round(performance.now() - pressed), "ms"), { once: true });
  if (!line.some((letter) => letter.trim())) {
    idle("Interrupted");
    return;
  }
  begin(null);
  now.asked = pressed;
  $("status").textContent = "Interrupted";
  say(line);
  stream.end();
}

// Live typing

// From here on what is typed is spoken; nothing of what is in the box already.
function follow() {
  pauses.forEach(clearTimeout);
  typing = $("live").checked ? new Typing(pointsOf(text.value)) : null;
  text.readOnly = Boolean(now) && !typing && now.base !== null;
}

const isOpen = () => now && now.base !== null && !stream.ended && !stream.over;

function write(hurry = false) {
  if (!typing) return;
  const { restart, base, points } = typing.follow(pointsOf(text.value), hurry);
  if (restart && now) {
    silence();
    idle("Stopped");
  }
  if (!isOpen() && points.some((letter) => letter.trim())) begin(base);
  if (isOpen() && points.length) say(points);
  rest(hurry);
}

// What is to be done when no key follows: speak the word that was begun, and, once all has been heard, end.
function rest(hurried = false) {
  pauses.forEach(clearTimeout);
  pauses = [setTimeout(finishIfHeard, TEXT_PAUSE_MS)];
  if (!hurried) pauses.push(setTimeout(() => write(true), WORD_PAUSE_MS));
}

function finishIfHeard() {
  if (!typing || !isOpen()) return;
  if (player.position < now.seconds - 0.1) pauses.push(setTimeout(finishIfHeard, HEARD_AGAIN_MS));
  else stream.end();
}

// What is shown

function busy(status) {
  document.body.classList.add("speaking");
  $("speak").textContent = "Stop";
  $("interrupt").disabled = false;
  $("status").textContent = status;
}

function idle(status) {
  mark(null);
  now = null;
  document.body.classList.remove("speaking");
  $("speak").textContent = "Speak";
  $("interrupt").disabled = true;
  text.readOnly = false;
  $("status").textContent = status;
}

function clear() {
  waveform.clear();
  strip.clear();
  chart.clear();
  mirror();
  $("error").hidden = true;
  $("warnings").replaceChildren();
  for (const id of FIGURES) show(id, NONE);
  $("in-hand").textContent = $("elapsed").textContent = "";
  files(null);
  draw();
}

function frame() {
  draw();
  if (!now) return;
  mark(now.base === null ? null : now.wordAt(player.position));
  requestAnimationFrame(frame);
}

function draw() {
  if (now) {
    const elapsed = (performance.now() - now.asked) / 1000;
    const inHand = Math.max(0, now.seconds - player.position);
    if (now.made) chart.push(elapsed, inHand);
    waveform.draw(player.position * SAMPLE_RATE);
    $("played").textContent = `${player.position.toFixed(1)} s`;
    $("made").textContent = `${now.seconds.toFixed(1)} s`;
    $("elapsed").textContent = `${elapsed.toFixed(1)} s`;
    $("in-hand").textContent = `${inHand.toFixed(1)} s`;
    show("underruns", String(player.underruns));
    const gaps = now.gaps;
    if (gaps.length) {
      show("gap", Math.round(gaps[gaps.length >> 1]), "ms");
      show("longest-gap", Math.round(gaps.at(-1)), "ms");
    }
  } else {
    waveform.draw();
  }
  chart.draw();
  strip.draw();
  if (!strip.tokens.length) return;
  const percent = Math.round((100 * strip.accepted) / strip.tokens.length);
  show("accepted", percent, "%");
  // Every pass adds one token of the model's own to those it accepted.
  if (now && !now.stats) show("tau", (strip.tokens.length / (strip.tokens.length - strip.accepted)).toFixed(2));
  show("count-tokens", strip.tokens.length.toLocaleString("en"));
  $("tokens").ariaLabel = `${strip.tokens.length} tokens, ${percent} % drafted and accepted`;
}

function mark(onset) {
  if (onset === marked) return;
  marked = onset;
  if (!onset) return mirror();
  const points = pointsOf(text.value);
  const [from, to] = [now.base + onset.start_char, now.base + onset.end_char];
  const found = document.createElement("mark");
  found.textContent = points.slice(from, to).join("");
  mirror(points.slice(0, from).join(""), found, points.slice(to).join(""));
}

function mirror(...parts) {
  $("mirror").replaceChildren(...(parts.length ? parts : [text.value]), "\n");
}

function files(utterance) {
  last = utterance;
  for (const kind of ["wav", "mp3", "srt"]) $(`save-${kind}`).disabled = !utterance;
}

function typed() {
  const count = pointsOf(text.value).length;
  $("count").textContent = count === 1 ? "1 character" : `${count.toLocaleString("en")} characters`;
  const sounding = marked;
  marked = null;
  if (sounding) mark(sounding);
  else mirror();
}

// Comparison

async function compareNow() {
  if (comparing) return comparing.abort();
  if (!text.value.trim()) return complain(inWords("no_text"));
  stop();
  comparing = new AbortController();
  $("error").hidden = true;
  $("compare").textContent = "Comparing, press to stop";
  const asked = order();
  if (!asked.voice) delete asked.voice;
  try {
    tabulate(await compare(text.value, asked, comparing.signal), $("comparison"));
  } catch ({ code, message }) {
    if (code !== "stopped") complain(inWords(code), message);
  }
  comparing = null;
  $("compare").textContent = "Compare";
}

// What happens

async function loadVoices() {
  const select = $("voice");
  try {
    const answer = await fetch(`/v1/voices${location.search}`);
    if (answer.status === 401) return complain(inWords("unauthorized"));
    const { voices, default: first } = await answer.json();
    select.replaceChildren(
      ...voices.map(({ name, language, description }) => {
        const label = `${name[0].toUpperCase()}${name.slice(1)} · ${description || language}`;
        return new Option(label, name, name === first, name === first);
      }),
    );
    select.disabled = false;
  } catch {
    $("status").textContent = "The list of voices could not be loaded";
  }
}

async function saveMp3() {
  const button = $("save-mp3");
  button.textContent = "MP3 …";
  button.disabled = true;
  try {
    save(await mp3(last), "speech.mp3");
  } catch (error) {
    complain("The MP3 could not be made.", error.message);
  }
  button.textContent = "MP3";
  button.disabled = !last;
}

player.addEventListener("audible", () => {
  if (now) show("first-audio", Math.round(performance.now() - now.asked), "ms");
});
player.addEventListener("underrun", () => {
  if (now) chart.dry.push((performance.now() - now.asked) / 1000);
});
player.addEventListener("ended", () => {
  if (!now) return;
  draw();
  waveform.draw(now.made);
  $("played").textContent = $("made").textContent;
  const spoken = now.seconds.toFixed(1);
  $("waveform").ariaLabel = `Waveform of ${spoken} seconds of speech`;
  $("buffer").ariaLabel = `Speech in hand over time, at most ${chart.most.toFixed(1)} seconds, ${player.underruns} underruns`;
  files(now);
  const done = now.failed ? "Broken off" : `Spoke ${spoken} s`;
  player.stop();
  idle(done);
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (now) stop();
  else speakAll();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speakAll();
  }
});
// The first touch of the page already wakes the audio, so that the press of the button need not wait for it.
for (const kind of ["pointerdown", "keydown"]) {
  document.addEventListener(kind, () => player.start().catch(() => {}), { once: true, capture: true });
}
text.addEventListener("input", () => {
  typed();
  write();
});
$("interruption").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
  event.preventDefault(); // not the form's button
  bargeIn();
});
$("interrupt").addEventListener("click", bargeIn);
$("live").addEventListener("change", () => {
  follow();
  if (typing) text.focus();
});
$("compare").addEventListener("click", compareNow);
$("save-wav").addEventListener("click", () => save(wav(last), "speech.wav"));
$("save-srt").addEventListener("click", () => save(srt(last), "speech.srt"));
$("save-mp3").addEventListener("click", saveMp3);
$("speed").addEventListener("input", () => {
  $("speed-shown").textContent = `${Number($("speed").value).toFixed(2)}×`;
});

if (/Mac|iPhone|iPad/.test(navigator.platform)) document.querySelector("kbd").textContent = "⌘";
clear();
typed();
loadVoices();
