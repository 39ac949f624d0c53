// A proxy for any conductor, in TypeScript without packages: it puts a note before every prompt.
//
//     node add_note.ts "Answer briefly."          (Node 22.18 or newer runs TypeScript)
//
// The format is described in docs/wire.md. JSON.parse rounds integers above 2^53.

type Id = number | string | null;
type Message = { id?: Id; method?: string; params?: any; result?: unknown; error?: unknown };

const note = process.argv[2];
const forwarded = new Map<Id, Id>(); // own id of a request that was sent on -> its id on arrival
let lastId = 0;

function send(message: Message): void {
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
}

/** Send a message on. The response to a request goes back with the id that it had on arrival. */
function forward(method: string, params: unknown, id?: Id): void {
  if (id === undefined) {
    send({ method, params });
  } else {
    forwarded.set(++lastId, id);
    send({ id: lastId, method, params });
  }
}

function receive(message: Message): void {
  const { id, method, params } = message;
  if (method === undefined) {
    const origin = forwarded.get(id ?? null);
    if (origin === undefined) return;
    forwarded.delete(id ?? null);
    send({ ...message, id: origin });
  } else if (method === "$/cancel_request") {
    for (const [own, origin] of forwarded) {
      if (origin === params.requestId) send({ method, params: { requestId: own } });
    }
  } else if (method === "proxy/initialize") {
    forward("proxy/successor", { method: "initialize", params }, id);
  } else if (method === "proxy/successor") {
    forward(params.method, fromAgent(params.method, params.params), id);
  } else {
    forward("proxy/successor", { method, params: fromClient(method, params) }, id);
  }
}

/** Change the params of a message on its way to the agent. */
function fromClient(method: string, params: any): any {
  if (method !== "session/prompt" || note === undefined) return params;
  // A slash command, such as /compact, has to come first; /etc/hosts is a path.
  const said = params.prompt.find((block: any) => block.type === "text" && block.text.trim());
  if (/^\s*\/[^\s/*][^\s/]*(\s|$)/.test(said?.text ?? "")) return params;
  return { ...params, prompt: [{ type: "text", text: note }, ...params.prompt] };
}

/** Change the params of a message on its way to the client. */
function fromAgent(method: string, params: any): any {
  return params;
}

let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk: string) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop() ?? "";
  for (const line of lines) {
    if (line.trim() !== "") receive(JSON.parse(line) as Message);
  }
});
