// Just enough of ZIP to change one file of a bundle.
import { crc32, inflateRawSync } from "node:zlib";

/** Name and content of each file. */
export function unzip(bytes) {
  const files = [];
  const end = bytes.lastIndexOf(Buffer.from("PK\x05\x06"));
  let at = bytes.readUInt32LE(end + 16);
  while (bytes.readUInt32LE(at) === 0x02014b50) {
    const [method, packed] = [bytes.readUInt16LE(at + 10), bytes.readUInt32LE(at + 20)];
    const [name, extra, comment] = [28, 30, 32].map((offset) => bytes.readUInt16LE(at + offset));
    const local = bytes.readUInt32LE(at + 42);
    const from = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
    const content = bytes.subarray(from, from + packed);
    files.push([
      bytes.toString("utf8", at + 46, at + 46 + name),
      method === 0 ? content : inflateRawSync(content),
    ]);
    at += 46 + name + extra + comment;
  }
  return files;
}

/** Stored, not compressed. */
export function zip(files) {
  const parts = [];
  const directory = [];
  let at = 0;
  for (const [name, content] of files) {
    const title = Buffer.from(name);
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt32LE(crc32(content), 10);
    common.writeUInt32LE(content.length, 14);
    common.writeUInt32LE(content.length, 18);
    common.writeUInt16LE(title.length, 22);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(at, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\0"), common, rest, title]));
    parts.push(Buffer.concat([Buffer.from("PK\x03\x04"), common, title, content]));
    at += 30 + title.length + content.length;
  }
  const list = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(files.length, 4);
  end.writeUInt16LE(files.length, 6);
  end.writeUInt32LE(list.length, 8);
  end.writeUInt32LE(at, 12);
  return Buffer.concat([...parts, list, Buffer.from("PK\x05\x06"), end]);
}
