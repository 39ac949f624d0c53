// Where the rows and records come from: the server, or this file.

/** The source of this page. Throws an `Error` with a text for the user. */
export async function openSource() {
  if (document.getElementById("index")) return new EmbeddedTrace();
  const given = new URLSearchParams(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  const token = given.has("code") ? await tokenOf(given.get("code")) : given.get("token");
  if (token) sessionStorage.setItem("token", token);
  const known = token ?? sessionStorage.getItem("token");
  if (!known) throw new Error("Open the whole link that acp-conductor printed: it has a token.");
  return new ServedTrace(known);
}

/** The token, for the code in the link of a browser that was opened. */
async function tokenOf(code) {
  const response = await fetch(`api/token?${new URLSearchParams({ code })}`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

class ServedTrace {
  constructor(token) {
    this.headers = { Authorization: `Bearer ${token}` };
  }

  /** The next rows; with `waits`, after a while without any. */
  async page(rows, strings, waits) {
    const wait = waits ? "&wait=" : "";
    return (await this.#get(`rows?from=${rows}&strings=${strings}${wait}`)).json();
  }

  /** The JSON of a record. */
  async record(i) {
    return (await this.#get(`record?row=${i}`)).text();
  }

  async links() {
    return (await this.#get("links")).json();
  }

  /** Rows with a text, in parts. */
  async *search(text, total) {
    for (let from = 0; from < total; ) {
      const query = new URLSearchParams({ text, from });
      const part = await (await this.#get(`search?${query}`)).json();
      yield part.rows;
      if (part.next <= from) return;
      from = part.next;
    }
  }

  async #get(path) {
    const response = await fetch(`api/${path}`, { headers: this.headers });
    if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
    return response;
  }
}

class EmbeddedTrace {
  #index = JSON.parse(takeText("index"));
  #records = takeText("records").split("\n");

  async page(rows) {
    const rest = { ...this.#index, state: "complete", live: false, total: this.#index.rows.length };
    return rows ? { ...rest, rows: [], strings: [] } : rest;
  }

  async record(i) {
    return this.#records[i];
  }

  async links() {
    return this.#index.links;
  }

  async *search(text) {
    const wanted = JSON.stringify(text).slice(1, -1).replaceAll("<", "\\u003c").toLowerCase();
    for (let from = 0; from < this.#records.length; from += 2000) {
      const found = [];
      for (let i = from; i < Math.min(from + 2000, this.#records.length); i += 1) {
        if (this.#records[i].toLowerCase().includes(wanted)) found.push(i);
      }
      yield found;
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
}

/** The text of a script element, which is removed. */
function takeText(id) {
  const holder = document.getElementById(id);
  const text = holder.textContent;
  holder.remove();
  return text;
}
