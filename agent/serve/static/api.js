// What the page asks of its own server, and the stream of a run's events.
import { t } from "./texts.js";

export class ApiError extends Error {
  constructor(status, message, remedy) {
    super(message);
    this.status = status;
    this.remedy = remedy;
  }
}

const KEY = "rubricem-key";

/** What proves a login beside its cookie, which goes to every port of this machine. */
export function keyed() {
  const key = localStorage.getItem(KEY);
  return key ? { "X-Rubricem-Key": key } : {};
}

/** Log this browser in. Throws ApiError. */
export async function logIn(token) {
  const { key } = await post("/api/login", { token });
  localStorage.setItem(KEY, key);
  return true;
}

/** JSON of the reply, or null for an empty one. Throws ApiError with the server's own sentences. */
export async function call(method, path, body, options = {}) {
  const headers = { Accept: "application/json", ...keyed() };
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

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

/** Every event of a run once and in order, from its first; `over` once the last one is in.
 *
 * A lost stream is taken up after the last event; `connected` is told when that changes. An end
 * that a restart follows is history: the stream is over when the server closes it behind an end.
 */
export function follow(run, { hear, over, connected }, signal) {
  let [last, wait, ended] = [0, FIRST_WAIT, false];
  const take = ({ id, event, data }) => {
    if (signal.aborted || !event || (id && id <= last)) return;
    last = id || last;
    ended = event === "end";
    hear(event, JSON.parse(data));
  };
  const open = async () => {
    if (signal.aborted) return;
    const address = path("runs", run, "events") + (last ? `?after=${last}` : "");
    const reply = await fetch(address, { headers: keyed(), signal }).catch(() => null);
    if (reply?.status === 200) {
      wait = FIRST_WAIT;
      connected(true);
      await streamed(reply.body, take);
    }
    if (signal.aborted) return;
    if (ended) return over();
    connected(false);
    const refused = reply && reply.status !== 200;
    const known = refused && await get(path("runs", run), { signal }).catch(() => null);
    if (known?.state === "ended") return over();
    setTimeout(open, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  };
  open();
}

/** Each event of a body as it comes, until it ends or breaks off. An EventSource sends no key. */
async function streamed(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) return;
    const told = (text + value).split("\n\n");
    text = told.pop();
    for (const frame of told) {
      const fields = frame.split("\n").map((line) => /^(\w+): (.*)$/s.exec(line)?.slice(1) ?? []);
      const { id, event, data } = Object.fromEntries(fields);
      take({ id: Number(id ?? 0), event, data });
    }
  }
}
