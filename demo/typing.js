// Which part of a text that is being written may be spoken already. Knows characters, no page and no sound.

const BREAK = /[\s.,;:!?…—]/u; // after these a word is over
const SENTENCE_END = /[.!?…\n]/u;

export class Typing {
  // points: what is in the box already, which nobody wants to hear.
  constructor(points) {
    this.said = points; // what was handed out, as it stood in the box
  }

  // What to do now that the box holds these characters: {restart, base, points}. restart: something said was changed, so its
  // sentence is said again from `base`; points: the new characters to speak. hurry: the word being written counts as whole.
  follow(now, hurry = false) {
    let same = 0;
    while (same < this.said.length && this.said[same] === now[same]) same += 1;
    const restart = same < this.said.length;
    let base = this.said.length;
    if (restart) {
      base = same;
      while (base && !SENTENCE_END.test(now[base - 1])) base -= 1;
      while (base < now.length && /\s/u.test(now[base])) base += 1;
    }
    let end = now.length;
    if (!hurry) while (end > base && !BREAK.test(now[end - 1])) end -= 1;
    this.said = now.slice(0, end);
    return { restart, base, points: now.slice(base, end) };
  }
}
