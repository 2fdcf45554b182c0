// One stream of speech over the server's socket (service/protocol.md): text goes in, sound and news come out. Knows no page.

export const SAMPLE_RATE = 24000;
const PIECE = 4000; // characters in one text message, well under the server's limit

export class Stream {
  // start: fields of the start message. listener: heard(Int16Array), told(message), failed(code, message); none after the last word.
  constructor(start, listener) {
    this.over = false; // the last word was said, by either side
    this.ended = false; // no more text may come
    this.heard = false;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}/v1/stream${location.search}`);
    this.socket.binaryType = "arraybuffer";
    this.waiting = [{ type: "start", sample_rate: SAMPLE_RATE, timestamps: true, speculation: true, ...start }];
    this.socket.onopen = () => {
      for (const message of this.waiting.splice(0)) this.say(message);
    };
    this.socket.onmessage = ({ data }) => {
      if (this.over) return;
      if (typeof data !== "string") {
        this.heard = true;
        listener.heard(new Int16Array(data));
        return;
      }
      const message = JSON.parse(data);
      this.over = message.type === "end" || message.type === "error";
      if (message.type === "error") listener.failed(message.code, message.message);
      else listener.told(message);
    };
    this.socket.onclose = () => {
      if (this.over) return;
      this.over = true;
      listener.failed(this.heard ? "lost" : "unreachable", "");
    };
  }

  // points: characters (code points), as the server counts them
  text(points) {
    for (let at = 0; at < points.length; at += PIECE) {
      this.say({ type: "text", text: points.slice(at, at + PIECE).join("") });
    }
  }

  end() {
    this.ended = true;
    this.say({ type: "end" });
  }

  cancel() {
    if (!this.over) this.say({ type: "cancel" });
    this.over = true;
    // A socket closed while it connects is an error in the browser's console.
    if (this.socket.readyState === WebSocket.CONNECTING) this.socket.onopen = () => this.socket.close();
    else this.socket.close();
  }

  say(message) {
    if (this.socket.readyState === WebSocket.CONNECTING) this.waiting.push(message);
    else if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
