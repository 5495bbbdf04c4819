import { type Item, layout } from "./layout";

self.onmessage = (message: MessageEvent<{ ask: number; items: Item[] }>) => {
  const { ask, items } = message.data;
  self.postMessage({ ask, layout: layout(items) });
};
