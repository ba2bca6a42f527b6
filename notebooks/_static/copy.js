// Each block of code gets a button that copies it, without the prompts of a console.

const PROMPT = /^(>>>|\.\.\.) ?/;
const SHOWN_MS = 2000;

function toCopy(block) {
  const lines = block.textContent.trimEnd().split("\n");
  const typed = lines.filter((line) => PROMPT.test(line));
  return (typed.length ? typed.map((line) => line.replace(PROMPT, "")) : lines).join("\n");
}

async function copy(block, button) {
  try {
    await navigator.clipboard.writeText(toCopy(block));
    button.textContent = "Copied";
  } catch {
    // not allowed: the reader does it by hand
    window.getSelection().selectAllChildren(block);
    button.textContent = "Press Ctrl-C";
  }
  window.setTimeout(() => {
    button.textContent = "Copy";
  }, SHOWN_MS);
}

for (const block of document.querySelectorAll("div.highlight > pre")) {
  if (block.closest(".cell_output")) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-code";
  button.textContent = "Copy";
  button.addEventListener("click", () => copy(block, button));
  block.parentElement.append(button);
}
