// Whether the server is there: told at once when it is not, and when it is back.
import { el, say } from "./dom.js";
import { clock } from "./format.js";
import { notice } from "./parts.js";
import { t } from "./texts.js";

const AGAIN = 2000;
const PATIENCE = 5000;
let banner = null;

/** Asks the server for a sign of life, and tells people where there is none. */
export async function reachable() {
  const signal = AbortSignal.timeout(PATIENCE);
  const there = await fetch("/healthz", { cache: "no-store", signal }).then(
    (reply) => reply.ok,
    () => false,
  );
  if (!there) gone();
  return there;
}

/** Whether it is known to be away. */
export const away = () => banner !== null;

function gone() {
  if (banner) return;
  const said = t("The server does not answer, since {0}.", clock(new Date()));
  const remedy = t("Check that `rubricem serve` still runs. This page goes on by itself when it is " +
    "back; runs go on with its next start, and nothing that was finished is lost.");
  banner = el("div", { class: "banner" }, notice(said, remedy, "bad"));
  document.body.append(banner);
  setTimeout(again, AGAIN);
}

async function again() {
  const reply = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
  if (!reply?.ok) return setTimeout(again, AGAIN);
  banner.remove();
  banner = null;
  say(t("The server is back."));
  dispatchEvent(new Event("back"));
}

addEventListener("unreached", gone);
