// One event stream per browser. The tab that holds the lock listens and tells the others; when it closes, another takes over.
// An event says what moved, never what it holds: the page asks again with its own rights.
import { useEffect, useRef, useSyncExternalStore } from "react";
import { sessionEnded } from "./client";

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
  | { kind: "restart" }
  | { kind: "connection"; now: Connection };

function wake(topic: string) {
  for (const listener of listeners.get(topic) ?? []) listener();
}

const say = (message: Message) => channel.postMessage(message);
const mine = () => [...listeners].filter(([, set]) => set.size > 0).map(([topic]) => topic);

// What follows belongs to the tab that listens for all.
const wanted = new Map<string, string[]>();
/** Topics that the caller may not follow: one of them would refuse the whole stream. */
const refused = new Set<string>();
/** After a refusal; a connection that breaks is made again by the browser itself. */
const RETRY = 2000;
let source: EventSource | undefined;
let listening: string | undefined;
let leads = false;
let retry: ReturnType<typeof setTimeout> | undefined;

const address = (topics: string) => `/v1/stream?topics=${encodeURIComponent(topics)}`;

function topics(): string {
  const all = new Set([...wanted.values()].flat());
  return [...all]
    .filter((topic) => !refused.has(topic))
    .sort()
    .join(",");
}

function listen() {
  if (!leads) return;
  wanted.set(tab, mine());
  const now = topics();
  if (now === listening) return;
  clearTimeout(retry);
  source?.close();
  source = undefined;
  listening = now;
  if (now === "") return;
  const opened = new EventSource(address(now));
  source = opened;
  opened.onopen = () => tell("live");
  opened.onerror = () => {
    tell("lost");
    if (opened.readyState === EventSource.CLOSED && opened === source) void afterRefusal(now);
  };
  opened.addEventListener("moved", (event) => {
    const { topic } = JSON.parse((event as MessageEvent<string>).data) as { topic: string };
    say({ kind: "moved", topic });
    wake(topic);
  });
  // The server dropped events for a slow reader: everything may have moved.
  opened.addEventListener("reload", () => {
    for (const topic of now.split(",")) {
      say({ kind: "moved", topic });
      wake(topic);
    }
  });
}

/** A refused stream names the topics that it is refused for: they are left out from now on. */
async function afterRefusal(asked: string) {
  const stop = new AbortController();
  const answer = await fetch(address(asked), { signal: stop.signal }).catch(() => undefined);
  if (answer?.status === 401) {
    sessionEnded();
    return;
  }
  const problem = answer && !answer.ok ? await answer.json().catch(() => ({})) : {};
  stop.abort();
  const named: string[] = Array.isArray(problem.refused_topics) ? problem.refused_topics : [];
  for (const topic of named) refused.add(topic);
  clearTimeout(retry);
  const again = () => {
    listening = undefined;
    listen();
  };
  if (named.length > 0) again();
  else retry = setTimeout(again, RETRY);
}

/** Opens the stream anew: the one before belongs to the session before. */
function restart() {
  refused.clear();
  listening = undefined;
  listen();
}

export function restartStream() {
  say({ kind: "restart" });
  restart();
}

function tell(now: Connection) {
  setConnection(now);
  say({ kind: "connection", now });
}

channel.onmessage = ({ data }: MessageEvent<Message>) => {
  if (data.kind === "moved") wake(data.topic);
  else if (data.kind === "connection") setConnection(data.now);
  else if (data.kind === "restart") restart();
  else if (data.kind === "ask") say({ kind: "wants", tab, topics: mine() });
  else if (leads) {
    if (data.kind === "gone") wanted.delete(data.tab);
    else {
      wanted.set(data.tab, data.topics);
      say({ kind: "connection", now: connection });
    }
    listen();
  }
};

function lead() {
  leads = true;
  say({ kind: "ask" });
  listen();
  return new Promise<never>(() => {});
}

// Without locks (a page that is not served securely) every tab listens for itself.
if (navigator.locks) void navigator.locks.request("countersign.stream", lead);
else void lead();
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
