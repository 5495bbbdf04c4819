// One warm worker lays out every graph of the page.
import { useEffect, useState } from "react";
import type { Item, Layout } from "./layout";

let worker: Worker | undefined;
let asks = 0;
const waiting = new Map<number, (layout: Layout) => void>();

function ask(items: Item[]): Promise<Layout> {
  if (!worker) {
    worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (message: MessageEvent<{ ask: number; layout: Layout }>) => {
      waiting.get(message.data.ask)?.(message.data.layout);
      waiting.delete(message.data.ask);
    };
  }
  asks += 1;
  const id = asks;
  return new Promise((done) => {
    waiting.set(id, done);
    worker?.postMessage({ ask: id, items });
  });
}

export function useLayout(items: Item[]): Layout | undefined {
  const [layout, setLayout] = useState<Layout>();
  useEffect(() => {
    let wanted = true;
    void ask(items).then((layout) => wanted && setLayout(layout));
    return () => {
      wanted = false;
    };
  }, [items]);
  return layout;
}
