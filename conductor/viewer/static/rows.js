// The rows of a trace and the links between them.

/** One record; the fields are those of `Row` in trace_index.py. Names are numbers of strings. */
export class Row {
  constructor(values, i) {
    [
      this.type, this.ts, this.chain, this.sender, this.receiver, this.n, this.towardAgent, this.hop,
      this.method, this.session, this.size, this.isError, this.isMcp, this.ref, this.took, this.cause,
      this.isChanged, this.text, this.extra,
    ] = values;
    this.i = i;
  }

  get isMessage() {
    return this.n > 0;
  }
}

export class Trace {
  rows = [];
  strings = [];
  /** Names of components, from the client to the agent. */
  lanes = [];
  usage = {};
  #errors = [];
  #laneOf = new Map();
  #byNumber = new Map();
  #responses = new Map();
  #effects = new Map();
  #attached = new Map();
  #inferred = new Map();

  /** Add a block of rows, as the server sends them. */
  add(page) {
    this.lanes = page.lanes;
    this.usage = page.usage;
    for (const each of page.strings) this.strings.push(each); // too many for arguments
    this.#laneOf = new Map(this.lanes.map((name, at) => [this.strings.indexOf(name), at]));
    for (const values of page.rows) this.#addRow(new Row(values, this.rows.length));
  }

  #addRow(row) {
    this.rows.push(row);
    if (row.isError) this.#errors.push(row);
    if (!row.isMessage) {
      if (row.ref) push(this.#attached, row.ref, row);
      return;
    }
    this.#byNumber.set(row.n, row);
    if (row.type === "r" && row.ref) this.#responses.set(row.ref, row);
    if (row.cause) push(this.#effects, row.cause, row.n);
  }

  /** Links that the conductor did not record: [message, cause, how they were found, is changed]. */
  setLinks(links) {
    for (const [n, cause, how, isChanged] of links) {
      if (!this.#inferred.has(n)) push(this.#effects, cause, n);
      this.#inferred.set(n, { cause, how });
      const row = this.#byNumber.get(n);
      if (row) row.isChanged = isChanged;
    }
  }

  /** The number of errors; one that passes several hops is one. */
  get errors() {
    return this.#errors.filter((row) => !this.cause(row)?.isError).length;
  }

  string(number) {
    return this.strings[number] ?? "";
  }

  lane(component) {
    return this.#laneOf.get(component) ?? -1;
  }

  message(n) {
    return this.#byNumber.get(n);
  }

  /** The message that this one came from. */
  cause(row) {
    return this.#byNumber.get(row.cause || this.#inferred.get(row.n)?.cause);
  }

  /** How a link was inferred; nothing if it was recorded. */
  inference(row) {
    return row.cause ? undefined : this.#inferred.get(row.n)?.how;
  }

  /** The same message, one hop before. */
  before(row) {
    const cause = this.cause(row);
    return cause && cause.n < row.n && isSame(cause, row) ? cause : undefined;
  }

  /** The same message, one hop further. */
  passedOn(row) {
    return this.#sentFor(row).filter((each) => isSame(row, each));
  }

  /** What the receiver sent while it handled a message, without its answer. */
  alsoSent(row) {
    return this.#sentFor(row).filter((each) => !isSame(row, each) && each.type !== "r");
  }

  /** The same message on all its hops, in order. */
  way(row) {
    let origin = row;
    for (let before = row; before; before = this.before(before)) origin = before;
    const left = [origin];
    const found = [];
    while (left.length) {
      found.push(left.pop());
      for (const each of this.passedOn(found.at(-1)).reverse()) left.push(each);
    }
    return found;
  }

  response(row) {
    return this.#responses.get(row.n);
  }

  /** The request that a message answers or cancels. */
  request(row) {
    return row.isMessage ? this.#byNumber.get(row.ref) : undefined;
  }

  /** The way of a request's answers: from each component that answered. */
  answers(way) {
    const origins = new Set();
    for (const each of way) {
      const response = this.response(each);
      if (response) origins.add(this.way(response)[0]);
    }
    return [...origins].sort((a, b) => a.n - b.n);
  }

  /** Handlers and log events of a message. */
  attached(row) {
    return this.#attached.get(row.n) ?? [];
  }

  /** The session of a row, or of its message. */
  session(row) {
    if (row.session >= 0 || !row.ref) return row.session;
    return this.#byNumber.get(row.ref)?.session ?? -1;
  }

  #sentFor(row) {
    const numbers = this.#effects.get(row.n) ?? [];
    return numbers.map((n) => this.#byNumber.get(n)).filter((each) => each && each.n > row.n);
  }
}

function isSame(before, after) {
  if (before.type !== after.type) return false;
  if (before.method !== after.method && before.type !== "n") return false;
  return before.receiver === after.sender ? before.sender !== after.receiver : isDiverted(before, after);
}

/** Whether a component was inserted for a request: `before` goes to the one behind, `after` to it. */
export function isDiverted(before, after) {
  return after.type === "q" && before.type === "q" && before.sender === after.sender;
}

function push(map, key, value) {
  const known = map.get(key);
  if (known) known.push(value);
  else map.set(key, [value]);
}
