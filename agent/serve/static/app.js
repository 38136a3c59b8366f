// Which view stands for which address, and the frame around all of them.
import { get, logIn } from "./api.js";
import { el, replace } from "./dom.js";
import { icon } from "./icons.js";
import { login } from "./login.js";
import {
  addressOf, button, choices, dot, empty, failure, grouped, notice, stateOf, titleOf,
} from "./parts.js";
import { reachable } from "./reach.js";
import { t } from "./texts.js";

const VIEWS = {
  "": () => import("./ask.js"),
  run: () => import("./run.js"),
  conversations: (one) => (one ? import("./conversation.js") : import("./conversations.js")),
  memory: () => import("./memory.js"),
  judge: () => import("./judge.js"),
  training: () => import("./training.js"),
  settings: () => import("./settings.js"),
};
const ICONS = ["ask", "threads", "memory", "judge", "training"];
/** Places of before, which links and bookmarks still name. */
const MOVED = { history: "conversations", threads: "conversations" };
const [RECENT, READ] = [12, 40];
const main = document.getElementById("main");
let leaving = new AbortController();

const parts = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Leave the view that is shown and show the one that the address names; `moved` to, or the first. */
async function route(moved) {
  const [place, ...rest] = parts();
  if (Object.hasOwn(MOVED, place)) {
    return location.replace(`#/${[MOVED[place], ...rest.map(encodeURIComponent)].join("/")}`);
  }
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  document.title = "rubricem";
  mark(place);
  const [name] = place.split("?");
  if (!Object.hasOwn(VIEWS, name)) return replace(main, unknown());
  const module = await VIEWS[name](...rest).catch(() => null);
  if (signal.aborted) return;
  if (!module) {
    reachable();
    return replace(main, unfetched());
  }
  try {
    replace(main, module.show(rest, signal));
    if (moved) settle();
    else asking();
  } catch (error) {
    replace(main, failure(error));
  }
  recent();
}

const unknown = () => empty(
  t("There is no such page"),
  t("What the address names is not here, or not any more."),
  el("a", { class: "button primary", href: "#/" }, t("Ask a question")),
);

/** A view whose own code did not come. */
const unfetched = () => el(
  "div",
  { class: "view stack" },
  el("h1", { tabindex: "-1" }, t("This page did not arrive")),
  notice(t("The server sent nothing for it."), t("Check that `rubricem serve` still runs."), "bad"),
  el("div", {}, button(t("Try again"), () => location.reload(), { kind: "primary" })),
);

/** Read a new view from its top: its heading has the focus, or the box that it is there for. */
function settle() {
  scrollTo(0, 0);
  if (!asking()) main.querySelector("h1")?.focus({ preventScroll: true });
}

/** Put the cursor into the question box of the first page; not where that brings up a keyboard. */
function asking() {
  const box = matchMedia("(pointer: fine)").matches && main.querySelector(".ask textarea");
  box?.focus?.({ preventScroll: true });
  return Boolean(box);
}

/** `/` begins a question from wherever one reads. */
function typed(event) {
  const { target, key, ctrlKey, metaKey, altKey } = event;
  if (key !== "/" || ctrlKey || metaKey || altKey) return;
  if (target.closest("input, textarea, select, dialog, [contenteditable]")) return;
  event.preventDefault();
  const box = main.querySelector(".composer textarea");
  if (box?.checkVisibility()) box.focus();
  else location.hash = "#/";
}

function mark(place) {
  const own = `#/${place.split("?")[0]}`;
  for (const link of document.querySelectorAll("#places a, .settings-link")) {
    if (link.getAttribute("href") === own) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function recent() {
  const found = await get(`/api/runs?limit=${READ}`).catch(() => null);
  if (found === null) return;
  const here = parts().slice(0, 2).map(encodeURIComponent).join("/");
  const rows = grouped(found.runs).slice(0, RECENT).map(([run]) => {
    const [href, title] = [addressOf(run, found.threads), titleOf(run, found.threads)];
    const said = el("span", { class: "unseen" }, `, ${stateOf(run)[0]}`);
    return el(
      "li",
      {},
      el(
        "a",
        {
          href,
          "aria-current": href === `#/${here}` ? "page" : null,
          title,
        },
        dot(run),
        el("span", { dir: "auto" }, title),
        said,
      ),
    );
  });
  replace(
    document.getElementById("recent"),
    rows.length ? rows : el("li", { class: "soft small none" }, t("None yet")),
  );
}

function themes() {
  const chosen = localStorage.getItem("theme") ?? "auto";
  const options = [
    ["auto", t("Theme of the system"), "auto"],
    ["light", t("Light theme"), "sun"],
    ["dark", t("Dark theme"), "moon"],
  ];
  return choices(t("Theme"), options, chosen, (value) => {
    if (value === "auto") {
      localStorage.removeItem("theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("theme", value);
      document.documentElement.dataset.theme = value;
    }
    dispatchEvent(new Event("theme"));
  });
}

async function foot() {
  const place = document.getElementById("side-foot");
  const settings = el(
    "a",
    { href: "#/settings", class: "settings-link" },
    icon("settings"),
    t("Settings"),
  );
  replace(place, settings, themes());
  mark(parts()[0]);
  const status = await get("/api/status").catch(() => null);
  if (status) place.prepend(el("p", { title: `rubricem ${status.version}` }, status.model));
}

/** The link that the server printed brings its token; no address bar keeps it, no log sees it. */
async function enter() {
  const [, token] = location.hash.match(/^#token=(.+)$/) ?? [];
  if (!token) return;
  history.replaceState(null, "", "#/");
  // A token of before is refused, and the right one asked for.
  await logIn(decoded(token)).catch(() => null);
}

for (const named of document.querySelectorAll("#places a, #recent-title, #skip")) {
  named.textContent = t(named.textContent);
}
document.querySelectorAll("#places a").forEach((link, i) => link.prepend(icon(ICONS[i])));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => route(true));
addEventListener("runs-changed", recent);
addEventListener("settings-changed", foot);
addEventListener("keydown", typed);
addEventListener("back", () => (main.querySelector(".notice.bad") ? route() : recent()));
addEventListener("locked", () => login(() => Promise.all([foot(), route(true)])));
await enter();
foot();
// A link that was followed before anything here listened has the focus.
route(document.activeElement !== document.body);
