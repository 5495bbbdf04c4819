// Makes a screenshot small: at most 256 colours. Pages have few colours; only the smoothing of letters has more.
import { deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

const TABLE = Array.from({ length: 256 }, (_, at) => {
  let sum = at;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? 0xedb88320 ^ (sum >>> 1) : sum >>> 1;
  return sum >>> 0;
});
const crc = (bytes) => {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = (TABLE[(sum ^ byte) & 255] ^ (sum >>> 8)) >>> 0;
  return (sum ^ 0xffffffff) >>> 0;
};

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data]);
  const whole = Buffer.alloc(body.length + 8);
  whole.writeUInt32BE(data.length, 0);
  body.copy(whole, 4);
  whole.writeUInt32BE(crc(body), body.length + 4);
  return whole;
}

/** The pixels of an 8-bit PNG without interlace, as Chromium writes it: three bytes each. */
function pixels(png) {
  let [width, height, bytes] = [0, 0, 3];
  const parts = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const type = png.toString("latin1", at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + length);
    if (type === "IHDR") {
      width = data.readUInt32BE(0);
      height = data.readUInt32BE(4);
      bytes = data[9] === 6 ? 4 : 3;
    } else if (type === "IDAT") parts.push(data);
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const row = width * bytes;
  const out = Buffer.alloc(height * row);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (row + 1)];
    for (let x = 0; x < row; x++) {
      const at = y * row + x;
      const left = x >= bytes ? out[at - bytes] : 0;
      const up = y > 0 ? out[at - row] : 0;
      const corner = x >= bytes && y > 0 ? out[at - row - bytes] : 0;
      out[at] = raw[y * (row + 1) + 1 + x] + predicted(filter, left, up, corner);
    }
  }
  return { width, height, bytes, data: out };
}

function predicted(filter, left, up, corner) {
  if (filter === 1) return left;
  if (filter === 2) return up;
  if (filter === 3) return (left + up) >> 1;
  if (filter !== 4) return 0;
  const guess = left + up - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

export function small(png) {
  const { width, height, bytes, data } = pixels(png);
  const colour = (at) => (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
  const counts = new Map();
  for (let at = 0; at < data.length; at += bytes) counts.set(colour(at), (counts.get(colour(at)) ?? 0) + 1);
  // A few red pixels are a state, many grey ones are the smoothing of letters: strong colours weigh more.
  const weight = ([one, count]) => {
    const parts = [one >> 16, (one >> 8) & 255, one & 255];
    return count * (1 + (Math.max(...parts) - Math.min(...parts)) / 4);
  };
  const palette = [...counts]
    .sort((a, b) => weight(b) - weight(a))
    .slice(0, 256)
    .map(([one]) => one);
  const index = new Map(palette.map((one, at) => [one, at]));
  const nearest = (one) => {
    let [best, least] = [0, Number.POSITIVE_INFINITY];
    palette.forEach((other, at) => {
      const far =
        ((one >> 16) - (other >> 16)) ** 2 +
        (((one >> 8) & 255) - ((other >> 8) & 255)) ** 2 +
        ((one & 255) - (other & 255)) ** 2;
      if (far < least) [best, least] = [at, far];
    });
    index.set(one, best);
    return best;
  };
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const one = colour((y * width + x) * bytes);
      rows[y * (width + 1) + 1 + x] = index.get(one) ?? nearest(one);
    }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  const table = Buffer.from(palette.flatMap((one) => [one >> 16, (one >> 8) & 255, one & 255]));
  return Buffer.concat([
    SIGNATURE,
    chunk("IHDR", head),
    chunk("PLTE", table),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}
