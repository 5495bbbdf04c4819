// The live states of steps, outside of React: a patch wakes the steps that changed and nothing else.
import { useSyncExternalStore } from "react";
import type { Cell } from "./model";

export class Cells {
  #cells = new Map<string, Cell>();
  #listeners = new Map<string, Set<() => void>>();
  #any = new Set<() => void>();
  /** Grows with every patch. */
  version = 0;

  get(id: string): Cell | undefined {
    return this.#cells.get(id);
  }

  patch(changes: Iterable<[string, Cell]>) {
    let changed = false;
    for (const [id, cell] of changes) {
      const before = this.#cells.get(id);
      if (before && same(before, cell)) continue;
      this.#cells.set(id, cell);
      changed = true;
      for (const listener of this.#listeners.get(id) ?? []) listener();
    }
    if (!changed) return;
    this.version += 1;
    for (const listener of this.#any) listener();
  }

  subscribe(id: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(id) ?? new Set();
    listeners.add(listener);
    this.#listeners.set(id, listeners);
    return () => listeners.delete(listener);
  }

  subscribeAll(listener: () => void): () => void {
    this.#any.add(listener);
    return () => this.#any.delete(listener);
  }
}

const FIELDS: (keyof Cell)[] = [
  "state",
  "token",
  "icon",
  "label",
  "short",
  "attempt",
  "pic",
  "deadline",
  "reached",
  "done",
  "downstreamOfBlocker",
  "child",
];

function same(a: Cell, b: Cell): boolean {
  return (
    FIELDS.every((field) => a[field] === b[field]) &&
    JSON.stringify([a.counts, a.facets]) === JSON.stringify([b.counts, b.facets])
  );
}

export function useCell(cells: Cells | undefined, id: string): Cell | undefined {
  return useSyncExternalStore(
    (listener) => cells?.subscribe(id, listener) ?? (() => {}),
    () => cells?.get(id),
  );
}

/** Any change at all; for summaries such as the counts of a collapsed group. */
export function useCellsVersion(cells: Cells | undefined): number {
  return useSyncExternalStore(
    (listener) => cells?.subscribeAll(listener) ?? (() => {}),
    () => cells?.version ?? 0,
  );
}
