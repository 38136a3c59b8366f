// A thread as one file for anywhere: given to the system where that shares files, or saved.
import { keyed } from "./api.js";
import { say } from "./dom.js";
import { button } from "./parts.js";
import { t } from "./texts.js";

const TYPE = "text/html";

/** A button that shares a thread's questions and answers. */
export function sharing(thread, title) {
  const address = `/api/threads/${encodeURIComponent(thread)}/export/html`;
  const share = async () => {
    const reply = await fetch(address, { headers: keyed() });
    if (!reply.ok) return say(t("The conversation could not be written."));
    const name = `rubricem-${thread}.html`;
    const file = new File([await reply.blob()], name, { type: TYPE });
    if (navigator.canShare?.({ files: [file] })) {
      // Who thinks better of it is told nothing.
      await navigator.share({ files: [file], title }).catch(() => {});
    } else {
      save(file);
    }
    say(t("The conversation was shared as one file."));
  };
  return button(t("Share as one file"), share, { kind: "small", drawn: "down" });
}

export function save(file) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = file.name;
  link.click();
  URL.revokeObjectURL(link.href);
}
