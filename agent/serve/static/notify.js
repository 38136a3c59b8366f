// A word from the system when a run has ended, for who asked to be told and looks elsewhere.
import { toggle } from "./parts.js";
import { t } from "./texts.js";

const KEY = "notify";
const able = () => "Notification" in window && isSecureContext;
const wanted = () => able() && Notification.permission === "granted"
  && localStorage.getItem(KEY) === "on";

/** A switch, where the browser can tell people anything; it asks for leave to. */
export function notifying() {
  return able() && toggle(t("Tell me when it is done"), wanted(), async (box) => {
    const granted = box.checked && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(KEY, granted ? "on" : "off");
    box.checked = wanted();
  });
}

export function notify(question, how) {
  if (!wanted()) return;
  const shown = new Notification(`${how}: ${question}`, { icon: "static/icon.svg" });
  shown.onclick = () => {
    window.focus();
    shown.close();
  };
}
