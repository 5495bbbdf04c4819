// One event stream per browser. The tab that holds the lock listens and tells the others; when it closes, another takes over.
// An event says what moved, never what it holds: the page asks again with its own rights.
import { useEffect, useRef, useSyncExternalStore } from "react";

type Listener = () => void;
const listeners = new Map<string, Set<Listener>>();
const channel = new BroadcastChannel("countersign.stream");
const tab = crypto.randomUUID();

export type Connection = "connecting" | "live" | "lost";
let connection: Connection = "connecting";
const watchers = new Set<() => void>();

function setConnection(now: Connection) {
  if (connection === now) return;
  connection = now;
  for (const watcher of watchers) watcher();
}

type Message =
  | { kind: "moved"; topic: string }
  | { kind: "wants"; tab: string; topics: string[] }
  | { kind: "gone"; tab: string }
  | { kind: "ask" }
  | { kind: "connection"; now: Connection };

function wake(topic: string) {
  for (const listener of listeners.get(topic) ?? []) listener();
}

const say = (message: Message) => channel.postMessage(message);
const mine = () => [...listeners].filter(([, set]) => set.size > 0).map(([topic]) => topic);

// What follows belongs to the tab that listens for all.
const wanted = new Map<string, string[]>();
let source: EventSource | undefined;
let listening: string | undefined;
let leads = false;

function topics(): string {
  return [...new Set([...wanted.values()].flat())].sort().join(",");
}

function listen() {
  if (!leads) return;
  wanted.set(tab, mine());
  const now = topics();
  if (now === listening) return;
  source?.close();
  listening = now;
  if (now === "") return;
  source = new EventSource(`/v1/stream?topics=${encodeURIComponent(now)}`);
  source.onopen = () => tell("live");
  source.onerror = () => tell(source?.readyState === EventSource.CLOSED ? "lost" : "connecting");
  source.addEventListener("moved", (event) => {
    const { topic } = JSON.parse((event as MessageEvent<string>).data) as { topic: string };
    say({ kind: "moved", topic });
    wake(topic);
  });
  // The server dropped events for a slow reader: everything may have moved.
  source.addEventListener("reload", () => {
    for (const topic of now.split(",")) {
      say({ kind: "moved", topic });
      wake(topic);
    }
  });
}

function tell(now: Connection) {
  setConnection(now);
  say({ kind: "connection", now });
}

channel.onmessage = ({ data }: MessageEvent<Message>) => {
  if (data.kind === "moved") wake(data.topic);
  else if (data.kind === "connection") setConnection(data.now);
  else if (data.kind === "ask") say({ kind: "wants", tab, topics: mine() });
  else if (leads) {
    if (data.kind === "gone") wanted.delete(data.tab);
    else wanted.set(data.tab, data.topics);
    listen();
  }
};

void navigator.locks?.request("countersign.stream", async () => {
  leads = true;
  say({ kind: "ask" });
  listen();
  await new Promise(() => {});
});
addEventListener("pagehide", () => say({ kind: "gone", tab }));

let due: ReturnType<typeof setTimeout> | undefined;
function changed() {
  // Pages subscribe one by one while they are drawn: one reconnection for all of them.
  clearTimeout(due);
  due = setTimeout(() => {
    if (leads) listen();
    else say({ kind: "wants", tab, topics: mine() });
  }, 50);
}

/** Calls back when something of this topic moved. */
export function useTopic(topic: string | undefined, moved: Listener) {
  const latest = useRef(moved);
  latest.current = moved;
  useEffect(() => {
    if (!topic) return;
    const listener = () => latest.current();
    const set = listeners.get(topic) ?? new Set();
    set.add(listener);
    listeners.set(topic, set);
    changed();
    return () => {
      set.delete(listener);
      changed();
    };
  }, [topic]);
}

export function useConnection(): Connection {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => connection,
  );
}
