// What the page asks of its own server, and the stream of a run's events.
import { t } from "./texts.js";

export class ApiError extends Error {
  constructor(status, message, remedy) {
    super(message);
    this.status = status;
    this.remedy = remedy;
  }
}

/** JSON of the reply, or null for an empty one. Throws ApiError with the server's own sentences. */
export async function call(method, path, body, options = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Rubricem"] = "1";
  if (body !== undefined && !(body instanceof FormData)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(path, { method, headers, body, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    window.dispatchEvent(new Event("unreached"));
    throw new ApiError(
      0,
      t("The server cannot be reached."),
      t("Check that `rubricem serve` still runs."),
    );
  }
  const said = await reply.json().catch((error) => {
    // Left while the reply was still coming: nobody waits for it, which is not an empty reply.
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (reply.ok) return said;
  if (reply.status === 401 && path !== "/api/login") window.dispatchEvent(new Event("locked"));
  const sentence = typeof said?.error === "string"
    ? said.error
    : t("The server answered {0}.", reply.status);
  throw new ApiError(reply.status, sentence, said?.remedy ?? "");
}

export const get = (path, options) => call("GET", path, undefined, options);
export const post = (path, body = {}) => call("POST", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

/** A path of parts that come from outside. */
export const path = (...parts) => `/api/${parts.map(encodeURIComponent).join("/")}`;

/** The parameters that have a value, as a query string. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

const EVENTS = [
  "state", "stage", "text", "plan", "rubric", "tool", "results", "retry", "note", "budget", "recalled",
  "usage", "investigation", "remarks", "ask", "answered", "verdicts", "finished", "restart", "end",
];
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

/** Every event of a run once and in order, from its first; `over` once the last one is in.
 *
 * A lost stream is taken up after the last event: by the browser itself (Last-Event-ID), or
 * where it gave up, by `?after=`. `connected` is told when that changes. An end that a restart
 * follows is history: the stream is over when the server closes it behind an end.
 */
export function follow(run, { hear, over, connected }, signal) {
  let [last, wait, ended] = [0, FIRST_WAIT, false];
  let stream = null;
  const open = () => {
    if (signal.aborted) return;
    stream = new EventSource(path("runs", run, "events") + (last ? `?after=${last}` : ""));
    stream.onopen = () => {
      wait = FIRST_WAIT;
      connected(true);
    };
    stream.onerror = lost;
    for (const name of EVENTS) stream.addEventListener(name, take);
  };
  const take = (event) => {
    const id = Number(event.lastEventId);
    if (signal.aborted || (id && id <= last)) return;
    last = id || last;
    ended = event.type === "end";
    hear(event.type, JSON.parse(event.data));
  };
  const lost = async () => {
    if (ended) {
      stream.close();
      over();
      return;
    }
    connected(false);
    if (stream.readyState !== EventSource.CLOSED) return;
    const known = await get(path("runs", run), { signal }).catch(() => null);
    if (known?.state === "ended") return over();
    setTimeout(open, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  };
  signal.addEventListener("abort", () => stream?.close());
  open();
}
