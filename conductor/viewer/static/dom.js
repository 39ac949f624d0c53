// Elements, made of text only: nothing of a trace is ever parsed as HTML.

/** An element. `onNAME` adds a listener; children are nodes, texts (as text nodes), or nothing. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((each) => each != null && each !== false));
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Call `work` before the next frame, once, however often this is called. */
export function beforeFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}
