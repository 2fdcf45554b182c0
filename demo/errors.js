// What went wrong, for the person in front of the page. Keys are the error codes of service/messages.py, and the page's own.

export const IN_WORDS = {
  unexpected_message: "The page and the server do not understand each other. Reload the page.",
  unsupported_data: "The page and the server do not understand each other. Reload the page.",
  invalid_json: "The page and the server do not understand each other. Reload the page.",
  unknown_field: "The page and the server do not understand each other. Reload the page.",
  missing_field: "The page and the server do not understand each other. Reload the page.",
  invalid_value: "The server does not take one of these settings.",
  unknown_voice: "This voice is no longer there. Reload the page to see the voices.",
  idle_timeout: "The server waited too long for this page.",
  slow_reader: "The connection is too slow for the audio.",
  too_big: "This is more text than the server takes at once. Try a shorter one.",
  too_long: "This is more text than the server takes at once. Try a shorter one.",
  overloaded: "The server is busy: all its sessions are taken. Try again in a moment.",
  shutting_down: "The server is shutting down.",
  unauthorized: "This server asks for an API key. Open the page as /?api_key=YOUR_KEY.",
  quota_exceeded: "Your API key has no characters left for today.",
  internal: "Something went wrong on the server.",
  unreachable: "The server cannot be reached. Is it running?",
  lost: "The connection to the server was lost.",
  no_output: "This browser gives no access to its audio output.",
  no_text: "There is no text yet. Type or paste some first.",
  nothing_spoken: "There is nothing to speak in this text: it has no letters or digits.",
};

export const inWords = (code) => IN_WORDS[code] ?? "The server refused.";
