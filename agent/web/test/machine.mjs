// Processes that a test starts, and waiting for what they do.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";

/** For one step, on a machine that is busy with other things. */
const LIMIT_MS = 180_000;

const children = [];

export function start(program, args, environment = {}) {
  const child = spawn(program, args, { env: { ...process.env, ...environment }, stdio: ["ignore", "pipe", "pipe"] });
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data) => (child.said = (child.said + data).slice(-20_000)));
  }
  children.push(child);
  return child;
}

export async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill(signal);
  await ended;
}

export async function endAll() {
  for (const child of children) await end(child, "SIGKILL");
}

/** What the processes said last, for whoever looks into a failure. */
export function said() {
  return children.map((child) => `${child.spawnfile}:\n${child.said.slice(-3_000)}`).join("\n");
}

/** Asks until there is something, and gives that. */
export async function until(what, probe) {
  const deadline = Date.now() + LIMIT_MS;
  let last;
  for (;;) {
    try {
      const found = await probe();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    assert.ok(Date.now() < deadline, `waited in vain for ${what}: ${last ?? ""}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}
