// A time axis on which nothing is long because nothing happened: idle gaps are compressed to a small, marked width.

export interface Span {
  from: number;
  to: number;
}

export interface Gap extends Span {
  /** Where it is drawn, from 0 to 1. */
  at: number;
  width: number;
}

export interface Scale {
  /** 0 is the beginning, 1 is the end. */
  place: (time: number) => number;
  gaps: Gap[];
}

/** A gap is compressed when it takes more than this share of the busy time. */
const LONG = 0.15;
/** What a compressed gap is drawn as, as a share of the busy time. */
const SHORT = 0.06;

export function scale(spans: Span[]): Scale {
  const busy = union(spans);
  const [first, last] = [busy[0], busy.at(-1)];
  if (!first || !last) return { place: () => 0, gaps: [] };
  const work = Math.max(
    1,
    busy.reduce((sum, span) => sum + span.to - span.from, 0),
  );
  // Pieces of the axis, in order: busy time as it is, gaps as they are or compressed.
  const pieces: (Span & { drawn: number; gap: boolean })[] = [];
  busy.forEach((span, at) => {
    const before = busy[at - 1];
    if (before) {
      const idle = span.from - before.to;
      const long = idle > work * LONG;
      pieces.push({ from: before.to, to: span.from, drawn: long ? work * SHORT : idle, gap: long });
    }
    pieces.push({ ...span, drawn: Math.max(span.to - span.from, work * 0.002), gap: false });
  });
  const total = pieces.reduce((sum, piece) => sum + piece.drawn, 0);
  let at = 0;
  const laid = pieces.map((piece) => {
    const one = { ...piece, at: at / total, width: piece.drawn / total };
    at += piece.drawn;
    return one;
  });
  const place = (time: number) => {
    const piece = laid.find((one) => time <= one.to) ?? laid.at(-1);
    if (!piece) return 0;
    const share = piece.to > piece.from ? (time - piece.from) / (piece.to - piece.from) : 0;
    return piece.at + piece.width * Math.min(1, Math.max(0, share));
  };
  return { place, gaps: laid.filter((one) => one.gap) };
}

function union(spans: Span[]): Span[] {
  const sorted = [...spans].sort((a, b) => a.from - b.from);
  const merged: Span[] = [];
  for (const span of sorted) {
    const last = merged.at(-1);
    if (last && span.from <= last.to) last.to = Math.max(last.to, span.to);
    else merged.push({ ...span });
  }
  return merged;
}
