// A thread as one file that opens anywhere: given to the system where that shares files, else saved.
import { say } from "./dom.js";
import { button } from "./parts.js";

const TYPE = "text/html";

/** A button that shares a thread's questions and answers. */
export function sharing(thread, title) {
  const address = `/api/threads/${encodeURIComponent(thread)}/export/html`;
  const share = async () => {
    const reply = await fetch(address);
    if (!reply.ok) return say("The thread could not be written.");
    const name = `rubricem-${thread}.html`;
    const file = new File([await reply.blob()], name, { type: TYPE });
    if (navigator.canShare?.({ files: [file] })) {
      // Who thinks better of it is told nothing.
      await navigator.share({ files: [file], title }).catch(() => {});
    } else {
      save(file);
    }
    say("The thread was shared as one file.");
  };
  return button("Share as one file", share, { kind: "small", drawn: "down" });
}

function save(file) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = file.name;
  link.click();
  URL.revokeObjectURL(link.href);
}
