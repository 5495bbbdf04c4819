// Signs out a person who has gone away, after as long as the server keeps an unused session. Events of the stream load pages
// anew and so use the session: without this, an open page would stay signed in for as long as anything moves.
// A person in one tab is present in all of them.
import { useSyncExternalStore } from "react";

/** Before the end, a warning: a minute, or a quarter of a short time. */
const WARNING = 60_000;

type Message = "present" | "began" | "ended";
export type Ending = "idle" | "ended";

const channel = new BroadcastChannel("countersign.session");
let idle: number | undefined;
let last = Date.now();
let used = Date.now();
let leaving = false;
const watchers = new Set<() => void>();

let touch: () => void = () => {};
let end: (why: Ending) => void = () => {};
let begun: () => void = () => {};

/** What to do: use the session; end it; load the page for a person who signed in in another tab. */
export function onIdle(acts: { touch: () => void; end: (why: Ending) => void; begun: () => void }) {
  ({ touch, end, begun } = acts);
}

/** The session was used now, and lasts so long from now on. */
export function lasts(ms: number) {
  used = Date.now();
  idle = Math.max(ms, 1000);
}

/** Why the server no longer knows the session. Of a person who was away, it ends up to a third before the page's own clock. */
export function ending(): Ending {
  return idle !== undefined && Date.now() - last >= idle * 0.6 ? "idle" : "ended";
}

/** A person signs in. How long ago the page was opened is not how long they were away. */
export function arrives() {
  last = Date.now();
  warn(false);
}

/** The session has ended. */
export function forget() {
  idle = undefined;
  warn(false);
}

export function tellOthers(message: Message) {
  channel.postMessage(message);
}

function warn(now: boolean) {
  if (leaving === now) return;
  leaving = now;
  for (const watcher of watchers) watcher();
}

function present(event: Event) {
  const now = Date.now();
  if (idle === undefined) return;
  // Once there is a warning, it goes away by a deliberate act: it does not vanish under the pointer.
  if (leaving && event.type === "pointermove") return;
  if (now - last > 1000) tellOthers("present");
  last = now;
  warn(false);
  // Reading and writing use no session by themselves.
  if (now - used > idle / 3) {
    used = now;
    touch();
  }
}

channel.onmessage = ({ data }: MessageEvent<Message>) => {
  if (data === "present") {
    last = Date.now();
    warn(false);
  } else if (data === "began") {
    last = Date.now();
    begun();
  } else if (idle !== undefined) end("ended");
};

for (const event of ["click", "pointermove", "keydown", "wheel"])
  addEventListener(event, present, { passive: true, capture: true });

setInterval(() => {
  if (idle === undefined) return;
  const left = last + idle - Date.now();
  if (left <= 0) end("idle");
  else warn(left < Math.min(WARNING, idle / 4));
}, 1000);

/** Whether the person is about to be signed out. */
export function useLeaving(): boolean {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => leaving,
  );
}
