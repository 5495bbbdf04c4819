// Of a long list only the rows that are in view: all rows have the same height.
import { type RefObject, useLayoutEffect, useState } from "react";

/** So many rows are drawn above and below what is in view: the next one can take the focus. */
const BEYOND = 10;

interface Row {
  index: number;
  start: number;
  height: number;
}

export function useRows(box: RefObject<HTMLElement | null>, count: number, height: number) {
  const [[from, to], setRange] = useState([0, 0]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: with the first row the box appears
  useLayoutEffect(() => {
    const scrolled = box.current;
    if (!scrolled) return;
    const measure = () => {
      const first = Math.max(0, Math.floor(scrolled.scrollTop / height) - BEYOND);
      const last = Math.ceil((scrolled.scrollTop + scrolled.clientHeight) / height) + BEYOND;
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    measure();
    scrolled.addEventListener("scroll", measure, { passive: true });
    const resized = new ResizeObserver(measure);
    resized.observe(scrolled);
    return () => {
      scrolled.removeEventListener("scroll", measure);
      resized.disconnect();
    };
  }, [box, height, count === 0]);
  const shown: Row[] = [];
  for (let index = from; index < Math.min(to, count); index++)
    shown.push({ index, start: index * height, height });
  return { height: count * height, shown };
}
