// Speech and its words as files: WAV from the samples that were heard, MP3 from the server, SubRip from the words. Knows no page.

import { SAMPLE_RATE } from "/stream.js";

const LINE_CHARS = 42; // as tts_spec/subtitles.py
const LINE_GAP_S = 0.6;

export function wav(utterance) {
  const header = new DataView(new ArrayBuffer(44));
  const name = (at, letters) => [...letters].forEach((letter, i) => header.setUint8(at + i, letter.charCodeAt(0)));
  const bytes = utterance.made * 2;
  name(0, "RIFF");
  header.setUint32(4, 36 + bytes, true);
  name(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true); // PCM
  header.setUint16(22, 1, true); // channels
  header.setUint32(24, SAMPLE_RATE, true);
  header.setUint32(28, SAMPLE_RATE * 2, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  name(36, "data");
  header.setUint32(40, bytes, true);
  return new Blob([header, ...utterance.pieces], { type: "audio/wav" });
}

// The same speech once more, encoded by the server: same text, voice and seed give the same tokens. Throws what the server says.
export async function mp3({ order, text }) {
  const query = new URLSearchParams(location.search);
  query.set("output_format", "mp3_44100_128");
  const answer = await fetch(`/v1/text-to-speech/${encodeURIComponent(order.voice)}?${query}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ text, seed: order.seed, voice_settings: { speed: order.speed } }),
  });
  if (!answer.ok) throw new Error((await answer.json()).detail?.message ?? answer.statusText);
  return answer.blob();
}

export function srt({ words }) {
  const blocks = lines(words).map((line, n) => {
    const text = line.map((word) => word.text).join(" ");
    return `${n + 1}\n${time(line[0].start_s)} --> ${time(line.at(-1).end_s)}\n${text}\n`;
  });
  return new Blob([blocks.join("\n")], { type: "application/x-subrip" });
}

function lines(words) {
  const found = [];
  for (const word of words) {
    const line = found.at(-1);
    const length = line?.reduce((sum, each) => sum + each.text.length + 1, word.text.length);
    if (!line || length > LINE_CHARS || word.start_s - line.at(-1).end_s > LINE_GAP_S) found.push([word]);
    else line.push(word);
  }
  return found;
}

function time(seconds) {
  const ms = Math.round(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const [hours, minutes, rest] = [Math.floor(ms / 3_600_000), Math.floor(ms / 60_000) % 60, ms % 60_000];
  return `${two(hours)}:${two(minutes)}:${two(Math.floor(rest / 1000))},${String(rest % 1000).padStart(3, "0")}`;
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
