// Making elements. Text is always text: nothing from a run is ever read as HTML.
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const svg = ["svg", "path", "rect", "line", "text", "title"].includes(name);
  const el = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const c of classes) el.classList.add(c);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "class") for (const c of value.split(" ")) c && el.classList.add(c);
    else if (!svg && key in el && typeof value !== "string") el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

export function fill(el, ...children) { el.replaceChildren(...children.flat().filter((c) => c !== null && c !== undefined && c !== false)); }

// A wide thing that scrolls sideways where the screen is narrow, by keyboard, too.
export function wide(label, ...children) { return h("div.scroll", { tabindex: "0", role: "region", "aria-label": label }, ...children); }

export function put(el, text) { if (el.textContent !== String(text)) el.textContent = text; }

// Asks before something is done; resolves to the value of the button, or "" where it was closed.
export function confirm(title, text, choices) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), h("p", {}, text),
      h("form.row", { method: "dialog" }, h("button", { value: "", autofocus: true }, "Cancel"),
        choices.map(([value, label, kind]) => h("button", { value, class: kind ?? "" }, label))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
