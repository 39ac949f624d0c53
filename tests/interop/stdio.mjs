// What the TypeScript peers share: the SDK's stream over a pair of pipes.

import { Readable, Writable } from "node:stream";
import { setImmediate } from "node:timers/promises";

/**
 * One message per turn of the event loop, so that what a handler does before it first waits for a
 * peer is done before the next message is read. The SDK alone lets a response overtake
 * notifications that came before it in the same chunk, or be overtaken by later ones.
 */
export function paced(stream) {
  const transform = async (message, controller) => {
    await setImmediate();
    controller.enqueue(message);
  };
  return { ...stream, readable: stream.readable.pipeThrough(new TransformStream({ transform })) };
}

export function stream(ndJsonStream, output = process.stdout, input = process.stdin) {
  return paced(ndJsonStream(Writable.toWeb(output), Readable.toWeb(input)));
}
